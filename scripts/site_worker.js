// Browsers don't start a worker from a file:// page. There this class, which has a worker's interface, runs the site's
// search in a hidden frame. The theme's search looks for `IFrameWorker`, and finds its folder by a script element.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.document.open();
      inside.document.write("<!doctype html><body></body>");
      inside.document.close();
      const load = (src) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          Object.assign(script, { src: new URL(src, location.href).href, onload: done, onerror: failed });
          inside.document.body.append(script);
        });
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...all) => all.reduce((before, src) => before.then(() => load(src)), Promise.resolve());
      this.inside = inside;
      this.ready = load(url);
      this.terminate = () => frame.remove();
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
