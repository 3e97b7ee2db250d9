// Browsers start no worker from a file:// address. Search needs one: a hidden frame does its work.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inner = this.frame.contentWindow;
      window.addEventListener("message", (event) => {
        if (event.source !== inner) return;
        const told = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(told);
        if (this.onmessage) this.onmessage(told);
      });
      const script = (source) =>
        new Promise((done, failed) => {
          const tag = inner.document.createElement("script");
          tag.src = source;
          tag.onload = done;
          tag.onerror = failed;
          inner.document.body.appendChild(tag);
        });
      inner.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => script(source)), Promise.resolve());
      inner.postMessage = (data) => {
        const send = new inner.Function("data", "parent.postMessage(data, '*')");
        send(data);
      };
      script(url).then(() => {
        this.ready = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      });
    }
    postMessage(data) {
      if (!this.ready) return this.waiting.push(data);
      const inner = this.frame.contentWindow;
      inner.dispatchEvent(new inner.MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
