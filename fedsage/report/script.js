const tip = document.getElementById("tip");
function show(words, event) {
  tip.textContent = words;
  tip.style.opacity = 1;
  const box = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, window.innerWidth - box.width - 6);
  const y = Math.min(event.clientY + 14, window.innerHeight - box.height - 6);
  tip.style.left = Math.max(4, x) + "px";
  tip.style.top = Math.max(4, y) + "px";
}
function hide() { tip.style.opacity = 0; }
for (const mark of document.querySelectorAll("[data-tip]")) {
  mark.addEventListener("pointermove", (event) => show(mark.dataset.tip, event));
  mark.addEventListener("pointerleave", hide);
}
for (const chart of document.querySelectorAll("svg[data-lines]")) {
  const data = JSON.parse(chart.dataset.lines);
  const cursor = chart.querySelector(".cursor");
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const at = (event.clientX - box.left) * chart.viewBox.baseVal.width / box.width;
    const share = (at - data.left) / (data.right - data.left);
    const x = Math.round(data.low + Math.min(1, Math.max(0, share)) * (data.high - data.low));
    const place = data.left + (x - data.low) / ((data.high - data.low) || 1) * (data.right - data.left);
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
    cursor.style.opacity = 1;
    const rows = data.lines.filter((line) => line.x.includes(x))
      .map((line) => line.name + "  " + line.y[line.x.indexOf(x)].toPrecision(4));
    show(data.x + " " + x + "\n" + rows.join("\n"), event);
  });
  chart.addEventListener("pointerleave", () => { hide(); cursor.style.opacity = 0; });
}
