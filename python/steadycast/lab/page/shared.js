// The common part of the pages.

export const $ = (id) => document.getElementById(id);

export const make = (tag, props = {}, ...inside) => {
  const made = Object.assign(document.createElement(tag), props);
  made.append(...inside.filter((each) => each !== null));
  return made;
};

export const figures = (x, n = 3) => Number(x.toPrecision(n));
export const rate = (v) => (v === null || v === undefined ? '–' : v >= 1e6 ? `${figures(v / 1e6)} Mb/s` : `${figures(v / 1e3)} kb/s`);
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim().replace(/^#(.)(.)(.)$/, '#$1$1$2$2$3$3');

// The token stands in the printed address, behind the #, and then in this browser's memory.
export const tokenIn = (text) => (/token=([^&]+)/.exec(text) || [null, null])[1];

export function remember(token) {
  try { localStorage.setItem('steadycast-token', token); } catch { /* the tab alone knows it then */ }
}

export function given() {
  try { return localStorage.getItem('steadycast-token') || ''; } catch { return ''; }
}
