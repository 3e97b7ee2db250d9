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

/* The numbers behind a chart or table: from its data, or as shown. */
function sheetOf(block, shown) {
  const data = block.querySelector("script[type='application/json']");
  if (data && !shown) return JSON.parse(data.textContent);
  const words = (cells) => Array.from(cells, (cell) => cell.textContent);
  const [head, ...rows] = Array.from(block.querySelectorAll("tr"), (row) => words(row.cells));
  return { columns: head, rows };
}

for (const chart of document.querySelectorAll("svg[data-lines]")) {
  const axis = JSON.parse(chart.dataset.lines);
  const cursor = chart.querySelector(".cursor");
  let sheet = null;
  chart.addEventListener("pointermove", (event) => {
    sheet = sheet || sheetOf(chart.closest("figure"));
    const box = chart.getBoundingClientRect();
    const at = (event.clientX - box.left) * chart.viewBox.baseVal.width / box.width;
    const share = Math.min(1, Math.max(0, (at - axis.left) / (axis.right - axis.left)));
    const x = Math.round(axis.low + share * (axis.high - axis.low));
    const place = axis.left + (x - axis.low) / ((axis.high - axis.low) || 1) * (axis.right - axis.left);
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
    cursor.style.opacity = 1;
    const row = sheet.rows.find((one) => one[0] === x) || [];
    const lines = sheet.columns.map((name, k) => [name, row[k]]).slice(1).filter((one) => one[1] != null);
    show(axis.x + " " + x + "\n" + lines.map(([name, y]) => name + "  " + y.toPrecision(4)).join("\n"), event);
  });
  chart.addEventListener("pointerleave", () => { hide(); cursor.style.opacity = 0; });
}

function csvOf(sheet) {
  const cell = (value) => {
    const words = value == null ? "" : String(value);
    return /[",\n]/.test(words) ? '"' + words.replaceAll('"', '""') + '"' : words;
  };
  return [sheet.columns, ...sheet.rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

const TEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", "×": "$\\times$",
  "–": "--", "−": "$-$", "…": "\\ldots{}", "↑": "$\\uparrow$", "↓": "$\\downarrow$", "<": "$<$", ">": "$>$" };
for (const sign of "&%$#_{}") TEX[sign] = "\\" + sign;
function texOf(sheet, caption) {
  const digits = (value) => typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(4))) : String(value);
  const words = (value) => Array.from(value == null ? "–" : digits(value), (sign) => TEX[sign] || sign).join("");
  const row = (cells) => "  " + cells.map(words).join(" & ") + " \\\\";
  const across = "l" + "r".repeat(sheet.columns.length - 1);
  return ["% \\usepackage{booktabs}", "\\begin{table}", "\\centering", "\\caption{" + words(caption) + "}",
    "\\begin{tabular}{" + across + "}", "  \\toprule", row(sheet.columns), "  \\midrule", ...sheet.rows.map(row),
    "  \\bottomrule", "\\end{tabular}", "\\end{table}", ""].join("\n");
}

const NS = "http" + "://www.w3.org/2000/svg";
const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "font-size"];
const FONT = "system-ui, Helvetica, Arial, sans-serif";
/* A copy with its colors written into it, since a file of its own has no style sheet. */
function plain(node) {
  const copy = node.cloneNode(true);
  const pairs = [[node, copy]];
  while (pairs.length) {
    const [from, to] = pairs.pop();
    const style = getComputedStyle(from);
    for (const name of STYLES) if (style.getPropertyValue(name)) to.setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "data-tip", "style", "data-lines"]) if (to.tagName !== "svg" || name !== "style") to.removeAttribute(name);
    Array.from(from.children).forEach((child, k) => pairs.push([child, to.children[k]]));
  }
  for (const cursor of node.querySelectorAll(".cursor")) copy.children[Array.from(node.children).indexOf(cursor)]?.remove();
  return copy;
}
function svgNode(tag, attributes, words) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (words !== undefined) node.textContent = words;
  return node;
}
const ruler = document.createElement("canvas").getContext("2d");
function widthOf(words, size) { ruler.font = size + "px " + FONT; return ruler.measureText(words).width; }
function finished(svg, width, height) {
  for (const [name, value] of Object.entries({ xmlns: NS, width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT })) svg.setAttribute(name, value);
  svg.removeAttribute("style");
  return new XMLSerializer().serializeToString(svg) + "\n";
}
function chartSvg(figure) {
  const chart = figure.querySelector("svg.chart");
  const box = chart.viewBox.baseVal;
  const copy = plain(chart);
  let x = 10, y = box.height + 14;
  for (const key of figure.querySelectorAll(".key")) {
    const wide = 34 + widthOf(key.textContent, 12) + 16;
    if (x > 10 && x + wide > box.width) { x = 10; y += 20; }
    const swatch = svgNode("g", { transform: `translate(${x},${y - 9})` });
    swatch.append(...plain(key.querySelector("svg")).children);
    copy.append(swatch, svgNode("text", { x: x + 30, y, "font-size": 12, fill: "#1b1f24" }, key.textContent.trim()));
    x += wide;
  }
  return finished(copy, box.width, figure.querySelector(".key") ? y + 10 : box.height);
}
function tableSvg(block) {
  const sheet = sheetOf(block, true);
  const rows = [sheet.columns, ...sheet.rows];
  const widths = sheet.columns.map((_, k) => Math.max(...rows.map((row) => widthOf(row[k] || "", 12))) + 20);
  const width = Math.ceil(widths.reduce((a, b) => a + b, 0)), height = rows.length * 22 + 8;
  const svg = svgNode("svg", {});
  rows.forEach((row, r) => {
    let x = 0;
    row.forEach((words, k) => {
      const place = k ? { x: x + widths[k] - 8, "text-anchor": "end" } : { x: 8 };
      svg.append(svgNode("text", { ...place, y: r * 22 + 16, "font-size": 12, "font-weight": r ? 400 : 600, fill: "#1b1f24" }, words));
      x += widths[k];
    });
    svg.append(svgNode("line", { x1: 0, x2: width, y1: r * 22 + 22, y2: r * 22 + 22, stroke: "#d5dbe1" }));
  });
  return finished(svg, width, height);
}
/* What a button gives: the text of a file, and what kind it is. */
function exported(block, kind) {
  const chart = block.tagName === "FIGURE";
  if (kind === "csv") return [csvOf(sheetOf(block)), "text/csv"];
  if (kind === "tex") return [texOf(sheetOf(block, !chart), block.dataset.name), "application/x-tex"];
  document.documentElement.dataset.theme = "light";  /* for paper, whatever the screen is */
  try { return [chart ? chartSvg(block) : tableSvg(block), "image/svg+xml"]; } finally { delete document.documentElement.dataset.theme; }
}
for (const button of document.querySelectorAll("button[data-get]")) {
  button.addEventListener("click", () => {
    const block = button.closest("figure, .table");
    const [words, type] = exported(block, button.dataset.get);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([words], { type }));
    link.download = "fedsage-" + block.dataset.name.toLowerCase().replace(/[^a-z0-9+]+/g, "-") + "." + button.dataset.get;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
}
