// Asks the search of a built site, as its pages do: the words come as JSON on stdin, and what is found goes to stdout.
// For each word a list of pages, the best first, and of each page the places on it.
const fs = require("fs");
const path = require("path");

const site = process.argv[2];
const hears = [];
let answered;
globalThis.self = globalThis;
globalThis.importScripts = () => {};
globalThis.addEventListener = (_, hear) => hears.push(hear);
globalThis.postMessage = (message) => answered(message);
const ask = (type, data) =>
  new Promise((done) => {
    answered = done;
    hears.forEach((hear) => hear({ data: { type, data } }));
  });

async function main() {
  const workers = path.join(site, "assets", "javascripts", "workers");
  const worker = fs.readdirSync(workers).find((name) => /^search\..*\.js$/.test(name));
  (0, eval)(fs.readFileSync(path.join(workers, worker), "utf8"));
  const index = JSON.parse(fs.readFileSync(path.join(site, "search", "search_index.json"), "utf8"));
  await ask(0, { ...index, options: { suggest: false } });
  const found = {};
  for (const word of JSON.parse(fs.readFileSync(0, "utf8"))) {
    const { data } = await ask(2, word);
    found[word] = data.items.map((page) => page.map((place) => place.location));
  }
  fs.writeSync(1, JSON.stringify(found));
}

main();
