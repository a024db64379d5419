// The lab's page. It sends the scenario's text, with what sliders change in it, and draws what comes back.

import { $, css, figures, given, make, rate, remember, tokenIn } from './shared.js';

const SIDES = ['A', 'B'];
const tab = crypto.randomUUID();
const state = {
  about: null, base: 0, b: null, text: '', edits: new Map(), knobs: [], sides: [], t: null, film: null, token: '', typed: 0,
};

// ---------------------------------------------------------------- the server

async function post(what, body, signal) {
  let answer;
  try {
    answer = await fetch(`/api/${what}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-steadycast-token': state.token },
      body: JSON.stringify({ tab, ...body }),
      signal,
    });
  } catch (error) {
    if (error.name !== 'AbortError') notice('The lab has ended. Start "steadycast lab" again; what is on the page stays.');
    throw error;
  }
  notice('');
  if (answer.status === 403) {
    $('ask-token').showModal();
    throw new Error('token');
  }
  return answer;
}

function notice(text) {
  $('notice').textContent = text;
  $('notice').hidden = !text;
  if (text) status('wrong', 'not connected');
}

function status(kind, text) {
  $('status').className = kind;
  $('status').lastElementChild.textContent = text;
}

// One request is active and the newest one waits for it, so that charts follow a slider while it moves.
// A request that takes longer than this is aborted.
const ABORT_AFTER_MS = 1000;
const asking = { busy: false, next: null, began: 0, abort: null, later: 0, slow: 0 };

function ask(pictures = false) {
  clearTimeout(asking.later);
  asking.next = { pictures };
  if (!asking.busy) go();
  else if (performance.now() - asking.began > ABORT_AFTER_MS || asking.pictures) asking.abort.abort();
}

async function go() {
  asking.busy = true;
  while (asking.next) {
    const { pictures } = asking.next;
    asking.next = null;
    asking.pictures = pictures;
    asking.began = performance.now();
    asking.abort = new AbortController();
    const typed = state.typed;
    const edits = [...state.edits.values()];
    if (!pictures) status('busy', 'running');
    asking.slow = setTimeout(follow, 700);
    try {
      const answer = await post('run', { base: state.base, text: state.text, edits, b: state.b, pictures }, asking.abort.signal);
      const got = await answer.json();
      if (got.newer) continue;
      if (got.wrong) throw new Error(got.wrong);
      taken(got, edits, typed);
      if (got.problems) {
        status('wrong', got.problems.length === 1 ? '1 problem' : `${got.problems.length} problems`);
      } else {
        const took = Math.round(performance.now() - asking.began);
        const cpu = Math.round(got.sides.reduce((sum, side) => sum + (side.cpu_s || 0), 0) * 1000);
        status('', pictures ? 'pictures measured' : `simulated in ${cpu} ms, on the page after ${took} ms`);
        if (!pictures && !asking.next && there().some(({ side }) => side.pixels)) asking.later = setTimeout(() => ask(true), 350);
      }
    } catch (error) {
      if (error.name !== 'AbortError' && error.name !== 'TypeError' && error.message !== 'token') status('wrong', error.message);
    } finally {
      clearTimeout(asking.slow);
      $('cancel').hidden = true;
    }
  }
  asking.busy = false;
}

async function follow() {
  if (!asking.busy) return;
  $('cancel').hidden = false;
  try {
    const [what, done, of] = (await (await post('progress', {})).json()).run;
    if (asking.busy && what) status('busy', of > 1 ? `${what}: ${Math.round((100 * done) / of)} %` : what);
  } catch { /* the request itself tells */ }
  if (asking.busy) asking.slow = setTimeout(follow, 300);
}

function taken(got, edits, typed) {
  for (const [name, edit] of state.edits) if (edits.includes(edit)) state.edits.delete(name);
  if (got.text !== undefined && typed === state.typed) setText(got.text);
  if (got.knobs) {
    state.knobs = got.knobs;
    drawKnobs();
  }
  problems(got.problems || []);
  $('seen').classList.toggle('stale', Boolean(got.problems));
  $('old').hidden = !(got.problems && state.sides.length);
  if (got.problems) return;
  state.sides = got.sides;
  state.verdict = got.verdict;
  drawSides();
  drawAll();
  if (state.film) $('film-note').textContent = 'The film shows earlier values.';
}

// ---------------------------------------------------------------- the text

function setText(text) {
  const before = state.text.split('\n');
  state.text = text;
  const box = $('text');
  if (box.value !== text) {
    const { scrollTop, selectionStart, selectionEnd } = box;
    box.value = text;
    if (document.activeElement === box) box.setSelectionRange(selectionStart, selectionEnd);
    box.scrollTop = scrollTop;
    const after = text.split('\n');
    state.changed = after.length === before.length ? after.findIndex((line, n) => line !== before[n]) : -1;
  }
  paintText();
}

function paintText() {
  const lines = state.text.split('\n');
  const bad = new Set(state.bad || []);
  $('colours').replaceChildren(...lines.map((line, n) => {
    const mark = bad.has(n + 1) ? 'b' : n === state.changed ? 'em' : 'i';
    const [, head, rest] = /^(\s*\[[^#]*|)(.*)$/.exec(line);
    const parts = head ? [make('span', { className: 'h', textContent: head })] : [];
    return make('div', {}, make(mark, { textContent: n + 1 }), ...parts, ...coloured(rest));
  }));
  scrolled();
}

function coloured(line) {
  return [...line.matchAll(/"(?:[^"\\]|\\.)*"|'[^']*'|#.*$|[^"'#]+|./g)].map(([part]) =>
    part[0] === '#' ? make('span', { className: 'c', textContent: part })
      : part[0] === '"' || part[0] === "'" ? make('span', { className: 's', textContent: part }) : part);
}

function scrolled() {
  $('colours').scrollTop = $('text').scrollTop;
}

function problems(found) {
  state.bad = found.map((p) => p.line).filter(Boolean);
  $('problems').replaceChildren(...found.map((p) => make('li', {},
    p.line ? make('button', { type: 'button', textContent: `line ${p.line}`, onclick: () => jump(p.line) }) : null,
    `${p.key ? `${p.key}: ` : ''}${p.what}; ${p.remedy}`)));
  $('text').setAttribute('aria-invalid', String(found.length > 0));
  paintText();
}

function jump(line) {
  const lines = state.text.split('\n');
  const start = lines.slice(0, line - 1).join('\n').length + (line > 1 ? 1 : 0);
  const box = $('text');
  box.focus();
  box.setSelectionRange(start, start + (lines[line - 1] || '').length);
  box.scrollTop = Math.max(0, $('colours').children[line - 1].offsetTop - 100);
}

let typing = 0;
$('text').addEventListener('input', () => {
  state.text = $('text').value;
  state.typed += 1;
  state.changed = -1;
  state.edits.clear();
  paintText();
  clearTimeout(typing);
  typing = setTimeout(() => ask(), 220);
});
$('text').addEventListener('scroll', scrolled);

// ---------------------------------------------------------------- knobs

const UNITS = {
  rate: [['Gbps', 1e9], ['Mbps', 1e6], ['kbps', 1e3], ['bps', 1]],
  span: [['min', 60], ['s', 1], ['ms', 1e-3], ['us', 1e-6], ['ns', 1e-9]],
  size: [['p', 1], ['GB', 1e9], ['MB', 1e6], ['kB', 1e3], ['MiB', 1 << 20], ['KiB', 1024], ['B', 1], ['s', 1], ['ms', 1e-3]],
};

function read(kind, value) {
  if (typeof value !== 'string') return typeof value === 'number' ? value : null;
  const found = /^\s*([0-9.e+-]+)\s*([a-zA-Zµ]*)\s*$/.exec(value);
  if (!found) return null;
  const unit = (UNITS[kind] || []).find(([name]) => name === found[2].replace('µs', 'us'));
  if (found[2] === 'h') return Number(found[1]) * 3600;
  return Number(found[1]) * (unit ? unit[1] : 1);
}

function write(kind, x, like) {
  if (kind === 'rate') {
    const [unit, step] = UNITS.rate.find(([, each]) => x >= each) || ['bps', 1];
    return `${figures(x / step)}${unit}`;
  }
  if (kind === 'span') return x === 0 ? '0ms' : x >= 1 ? `${figures(x)}s` : x >= 1e-3 ? `${figures(x * 1e3)}ms` : `${figures(x * 1e6)}us`;
  if (kind === 'size') {
    const unit = /[a-zA-Z]+$/.exec(like || '50p')[0];
    if (unit === 'p') return `${Math.round(x)}p`;
    if (unit === 's' || unit === 'ms') return `${figures(x * 1e3)}ms`;
    return `${figures(x / 1e3)}kB`;
  }
  if (kind === 'whole') return Math.round(x);
  if (kind === 'share') return figures(x, 2);
  return figures(x);
}

function said(kind, value) {
  if (kind === 'share') return `${figures((value || 0) * 100, 2)} %`;
  if (value === null || value === undefined) return 'not set';
  const text = String(value);
  const unit = /^([0-9.e+-]+)(bps|kbps|Mbps|Gbps|ns|us|ms|s|min|kB|MB|B|p)$/.exec(text);
  return unit ? `${unit[1]} ${{ p: 'packets', kbps: 'kb/s', Mbps: 'Mb/s', Gbps: 'Gb/s', bps: 'b/s' }[unit[2]] || unit[2]}` : text;
}

const STEPS = 240;

// Maps a slider's position, 0 to 1, to a value and back: by ratio, by a power, or linearly.
function scale(knob) {
  let low = read(knob.kind, knob.min), high = read(knob.kind, knob.max);
  const now = read(knob.kind, knob.value);
  if (knob.kind === 'size') {
    const unit = /[a-zA-Z]+$/.exec(knob.value || '50p')[0];
    [low, high] = unit === 'p' ? [2, 1000] : unit.endsWith('s') && unit.length < 3 ? [1e-3, 1] : [1500, 1e6];
  }
  if (now !== null) [low, high] = [Math.min(low, now), Math.max(high, now)];
  if (low > 0 && high / low >= 50) return { to: (x) => low * (high / low) ** x, from: (v) => Math.log(Math.max(v, low) / low) / Math.log(high / low) };
  const power = low === 0 && (knob.kind === 'share' || high > 100) ? (high > 100 ? 4 : 2) : 1;
  return { to: (x) => low + (high - low) * x ** power, from: (v) => high > low ? Math.max(0, (v - low) / (high - low)) ** (1 / power) : 0 };
}

const shownKnobs = new Map();
const recorded = () => state.about.bases[state.base].recorded; // what A is called where it is a call that was read

function drawKnobs() {
  const groups = new Map();
  for (const knob of state.knobs) groups.set(knob.group, [...(groups.get(knob.group) || []), knob]);
  const signature = JSON.stringify(state.knobs.map((k) => [k.path, k.group, k.kind, k.of, k.kind === 'size' && String(k.value).replace(/[0-9.]/g, '')]));
  if (signature !== drawKnobs.signature) {
    drawKnobs.signature = signature;
    const held = document.activeElement && document.activeElement.dataset.key;
    shownKnobs.clear();
    $('groups').replaceChildren(...[...groups].filter(([name]) => !SIDES.includes(name)).map(([name, knobs]) =>
      make('fieldset', {}, make('legend', { textContent: name }), ...knobs.map((k) => oneKnob(k)))));
    for (const side of SIDES) {
      const knobs = (groups.get(side) || []).filter((k) => k.label !== 'controller');
      $(`side-${side.toLowerCase()}`).querySelector('.params').replaceChildren(...grouped(knobs.map((k) => oneKnob(k, side))));
      $(`side-${side.toLowerCase()}`).querySelector('details').hidden = !knobs.length;
    }
    const choice = state.knobs.find((k) => k.group === 'A' && k.label === 'controller');
    $('side-a').querySelector('.which').replaceChildren(...(recorded() ? [recorded()] : choice ? [oneKnob(choice, 'A').querySelector('select')] : []));
    if (recorded()) $('side-a').querySelector('details').hidden = true;
    const names = choice ? choice.of : [];
    $('b').replaceChildren(make('option', { value: '', textContent: 'nothing' }), ...names.map((n) => make('option', { value: n, textContent: n })));
    $('b').value = state.b || '';
    $('side-a').hidden = $('side-b').hidden = !choice;
    if (held && shownKnobs.has(held)) shownKnobs.get(held).input.focus();
  }
  for (const knob of state.knobs) {
    const shown = shownKnobs.get(keyOf(knob));
    if (shown && !state.edits.has(keyOf(knob))) shown.set(knob);
  }
}

// The registry names first what is set most often.
const FIRST = 4;
const grouped = (all) => all.length <= FIRST + 2 ? all : [...all.slice(0, FIRST),
  make('details', {}, make('summary', { textContent: `${all.length - FIRST} more` }), ...all.slice(FIRST))];

const keyOf = (knob) => `${knob.group}/${knob.path.join('.')}`;

function oneKnob(knob, side = '') {
  const key = keyOf(knob);
  const id = `k-${key.replace(/[^a-zA-Z0-9]/g, '-')}`;
  const change = (value) => {
    state.edits.set(key, [knob.path, value]);
    ask();
  };
  const output = make('output', { htmlFor: id });
  let input, set;
  if (knob.kind === 'choice') {
    const of = knob.of.includes(knob.value) || knob.value === null ? knob.of : [knob.value, ...knob.of];
    input = make('select', { id, onchange: () => change(input.value) }, ...of.map((each) => make('option', { value: each, textContent: String(each).split('/').pop() })));
    if (knob.value === null) input.prepend(make('option', { value: '', textContent: said(knob.kind, null), disabled: true }));
    set = (now) => { input.value = now.value ?? ''; };
  } else if (knob.kind === 'switch') {
    input = make('input', { id, type: 'checkbox', onchange: () => change(input.checked) });
    set = (now) => { input.checked = now.value === true; };
  } else {
    const whole = knob.kind === 'whole';
    input = make('input', { id, type: 'range', min: 0, max: STEPS, step: 1 });
    let way, like = knob.value;
    set = (now) => {
      like = now.value;
      if (whole) {
        input.min = Math.min(now.min, now.value);
        input.max = Math.max(now.max, now.value);
        input.value = now.value;
      } else {
        way = scale(now);
        const x = read(now.kind, now.value);
        input.value = x === null ? 0 : Math.round(way.from(x) * STEPS);
      }
      tell(now.value);
    };
    const tell = (value) => {
      output.value = said(knob.kind, value);
      input.setAttribute('aria-valuetext', output.value);
    };
    input.oninput = () => {
      const value = whole ? Number(input.value) : write(knob.kind, way.to(input.value / STEPS), like);
      tell(value);
      change(value);
    };
  }
  input.title = knob.about;
  input.dataset.key = key;
  if (side) input.setAttribute('aria-label', `${side}: ${knob.label}`);
  shownKnobs.set(key, { input, set });
  set(knob);
  return make('div', { className: `knob ${knob.kind}` }, make('label', { htmlFor: id, textContent: knob.label, title: knob.about }), knob.kind === 'switch' ? input : output, knob.kind === 'switch' ? null : input);
}

$('b').addEventListener('change', () => {
  state.b = $('b').value || null;
  ask();
});

// ---------------------------------------------------------------- colours

const dark = matchMedia('(prefers-color-scheme: dark)');
dark.addEventListener('change', () => drawAll(true));

function mixed(one, other, share) {
  const channels = (c) => [1, 3, 5].map((n) => parseInt(c.slice(n, n + 2), 16));
  const [a, b] = [channels(one), channels(other)];
  return `#${a.map((v, n) => Math.round(v + (b[n] - v) * share).toString(16).padStart(2, '0')).join('')}`;
}

function ink(colour) {
  if (colour === state.about.ink) return css('ink');
  return dark.matches ? mixed(colour, '#ffffff', 0.28) : colour;
}

// The videos are what is looked at; what they share the network with stands back.
const look = (line) => (line.video || line.link ? ink(line.colour) : mixed(ink(line.colour), css('paper'), 0.42));

function colourOf(name) {
  const found = state.about.controllers.find((each) => each.name === name);
  return ink(found ? found.colour : '#0072b2');
}

function drawSides() {
  const a = (state.knobs.find((k) => k.group === 'A' && k.label === 'controller') || {}).value;
  const names = [recorded() ? null : a, state.b];
  SIDES.forEach((side, n) => {
    const box = $(`side-${side.toLowerCase()}`);
    document.documentElement.style.setProperty(`--${side.toLowerCase()}`, names[n] ? colourOf(names[n]) : css(n || !recorded() ? 'muted' : 'ink'));
    const wrong = state.sides[n] && state.sides[n].problems;
    const about = box.querySelector('.about');
    const found = state.about.controllers.find((each) => each.name === names[n]);
    about.classList.toggle('wrong', Boolean(wrong));
    about.textContent = wrong ? wrong.map((p) => `${p.what}; ${p.remedy}`).join('\n') : found ? found.about : '';
  });
  $('b').value = state.b || '';
  $('report-a').disabled = Boolean(recorded());
  $('report-b').disabled = !shown(1);
  $('make-film').textContent = `film: the original${shown(1) ? ', A and B' : ' and A'}`;
}

// ---------------------------------------------------------------- charts

const shown = (n) => (state.sides[n] && !state.sides[n].problems ? state.sides[n] : null);
const there = () => SIDES.map((name, n) => ({ name, n, side: shown(n) })).filter((each) => each.side);
const CHARTS = [
  { id: 'rates', title: 'throughput', height: 230, say: rate, lines: (side) => side.charts.rates.lines },
  { id: 'delay', title: 'one-way delay', height: 130, say: (v) => `${figures(v)} ms`, lines: (side) => side.charts.delay },
  { id: 'queue', title: 'queue', height: 120, say: (v) => `${figures(v)} ms`, lines: (side) => side.charts.queue },
  { id: 'loss', title: 'loss', height: 110, say: (v) => `${figures(v)} %`, lines: (side) => side.charts.loss },
];

function drawAll(again = false) {
  if (!state.sides.length) return;
  const to = Math.max(...there().map(({ side }) => side.to_s), 1e-3);
  state.to = to;
  state.from = Math.min(...there().map(({ side }) => side.since_s || 0), to - 1e-3);
  $('time').min = state.from;
  $('time').max = to;
  if (state.t === null || state.t > to) state.t = null;
  for (const chart of CHARTS) drawChart(chart, again);
  drawLegend();
  drawStrips();
  drawSays();
  drawNumbers();
  point(state.t);
}

function drawChart(chart, again) {
  const box = $(chart.id);
  const lines = there().flatMap(({ name, n, side }) => chart.lines(side).map((line) => ({ ...line, name, n, video: line.video ?? side.decisions.some((d) => d.flow === line.flow), link: chart.id === 'queue' })));
  lines.sort((one, other) => one.video - other.video);
  box.hidden = !lines.length;
  if (!lines.length) return;
  chart.shown = lines;
  const data = uPlot.join(lines.map((line) => [line.t, line.y]));
  const signature = JSON.stringify(lines.map((line) => [line.flow, line.colour, line.n]));
  if (chart.plot && signature === chart.signature && !again) {
    chart.plot.setData(data);
    return;
  }
  chart.signature = signature;
  box.setAttribute('role', 'img');
  box.setAttribute('aria-label', `${chart.title} over time`);
  if (chart.plot) chart.plot.destroy();
  box.replaceChildren(make('h3', { textContent: chart.id === 'queue' ? `queue of ${[...new Set(lines.map((line) => line.label))].join(' and ')}` : [...new Set(there().map(({ side }) => (side.titles || {})[chart.id] || chart.title))].join(', ') }));
  const axis = { stroke: css('muted'), grid: { stroke: css('grid'), width: 1 }, ticks: { show: false }, font: `${innerWidth < 736 ? 10 : 11}px system-ui, sans-serif` };
  const edge = parseInt(css('edge'), 10);
  chart.plot = new uPlot({
    width: box.clientWidth,
    height: chart.height,
    padding: [16, 20, 0, 0],
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, sync: { key: 'lab', setSeries: false }, points: { size: 6 }, bind: { dblclick: () => null } },
    scales: { x: { time: false, range: () => [state.from, state.to] }, y: { range: (u, low, high) => [0, (high > 0 ? high : 1) * 1.12] } },
    axes: [
      { ...axis, size: 24, gap: 2, values: (u, ticks) => ticks.map((t, n) => (n === ticks.length - 1 ? `${t} s` : t)) },
      { ...axis, size: edge, gap: 4, space: 26, values: (u, ticks) => ticks.map((v) => (v === 0 ? '0' : chart.say(v).replace(' ', '\u2009'))) },
    ],
    series: [{}, ...lines.map((line) => ({ stroke: look(line), width: line.video ? 2.4 : 1.3, dash: line.n ? [7, 4] : undefined, points: { show: false } }))],
    hooks: {
      drawClear: [(u) => under(u, chart)],
      draw: [(u) => over(u, chart)],
      setCursor: [(u) => { if (u.cursor.left >= 0 && u.cursor.event && !state.pointing) { state.aside = true; point(u.posToVal(u.cursor.left, 'x'), true); } }],
    },
  }, data, box);
  chart.plot.over.addEventListener('mousedown', () => seek(state.t));
}

// Draws the layer under the lines: the warm-up, events, fair shares and the capacity.
function under(u, chart) {
  const g = u.ctx, k = devicePixelRatio, first = there()[0].side;
  const { left, top, width, height } = u.bbox;
  const x = (t) => u.valToPos(t, 'x', true), y = (v) => u.valToPos(v, 'y', true);
  g.save();
  g.beginPath();
  g.rect(left, top, width, height);
  g.clip();
  g.font = `${10.5 * k}px system-ui, sans-serif`;
  g.textAlign = 'left';
  if (first.from_s) {
    g.fillStyle = css('soft');
    g.fillRect(left, top, x(first.from_s) - left, height);
    g.fillStyle = css('muted');
    if (chart.id === 'rates') g.fillText('warm-up', left + 4 * k, top + height - 5 * k);
  }
  g.strokeStyle = css('muted');
  g.lineWidth = k;
  g.setLineDash([2 * k, 3 * k]);
  for (const [t, what] of first.events) {
    stroke(g, [[x(t), top], [x(t), top + height]]);
    g.fillStyle = css('muted');
    const wide = g.measureText(what).width + 6 * k;
    if (chart.id === 'rates') g.fillText(what, x(t) + (x(t) + wide > left + width ? 3 * k - wide : 3 * k), top + height - 5 * k);
  }
  if (chart.id === 'rates') {
    for (const [value, whose] of first.charts.rates.shares) {
      if (value > u.scales.y.max) continue;
      stroke(g, [[left, y(value)], [left + width, y(value)]]);
    }
    const { capacity } = first.charts.rates;
    g.setLineDash([]);
    if (capacity) stroke(g, capacity.t.flatMap((t, n) => [[x(t), y(capacity.y[n])], [x(n + 1 < capacity.t.length ? capacity.t[n + 1] : state.to), y(capacity.y[n])]]));
  }
  g.restore();
}

// Draws the labels over the lines.
function over(u, chart) {
  if (chart.id !== 'rates') return;
  const g = u.ctx, k = devicePixelRatio, { left, width } = u.bbox;
  g.save();
  g.font = `${10.5 * k}px system-ui, sans-serif`;
  g.textAlign = 'left';
  let at = Infinity;
  for (const [value, whose] of there()[0].side.charts.rates.shares.toSorted((one, other) => one[0] - other[0])) {
    if (value > u.scales.y.max) continue;
    const text = `${whose} ${rate(value)}`, wide = g.measureText(text).width;
    at = Math.min(u.valToPos(value, 'y', true), at - 14 * k);
    g.fillStyle = css('paper');
    g.globalAlpha = 0.8;
    g.fillRect(left + width - wide - 8 * k, at - 16 * k, wide + 8 * k, 14 * k);
    g.globalAlpha = 1;
    g.fillStyle = css('muted');
    g.fillText(text, left + width - wide - 4 * k, at - 5 * k);
  }
  g.restore();
}

function stroke(g, points) {
  g.beginPath();
  points.forEach(([x, y], n) => (n ? g.lineTo(x, y) : g.moveTo(x, y)));
  g.stroke();
}

function drawLegend() {
  const lines = CHARTS[0].shown || [];
  $('legend').replaceChildren(...[...lines].sort((one, other) => other.video - one.video || one.n - other.n).map((line) => {
    const key = make('span', { className: `key ${line.name.toLowerCase()}${line.video ? ' video' : ''}` }, make('i'), there().length > 1 ? `${line.name} ${line.label}` : line.label, make('output'));
    key.firstChild.style.borderColor = look(line);
    key.line = line;
    return key;
  }));
}

// ---------------------------------------------------------------- frames

function drawStrips() {
  const rows = [];
  state.strips = [];
  for (const { name, n, side } of there()) {
    for (const strip of side.strips) {
      const canvas = make('canvas', { height: 22, role: 'img', ariaLabel: `${name}: frames of ${strip.label}` });
      canvas.onmousemove = (event) => point((event.offsetX / canvas.clientWidth) * state.to);
      canvas.onclick = (event) => seek((event.offsetX / canvas.clientWidth) * state.to);
      rows.push(make('div', { className: `strip ${name.toLowerCase()}`, title: strip.label }, make('span', { textContent: there().length > 1 || side.strips.length > 1 ? name : 'frames' }), canvas));
      state.strips.push({ canvas, strip, name, n });
    }
  }
  const key = (colour, text) => {
    const box = make('i');
    box.style.background = colour;
    return make('span', {}, box, text);
  };
  const measured = state.strips.some(({ strip }) => strip.mos.some((v) => v !== null));
  const looks = measured ? Object.values(state.about.mos).reverse().map(([word, colour]) => key(colour, word))
    : [key(quantizer(2), 'fine'), key(quantizer(31), 'coarse quantizer')];
  $('strips').replaceChildren(...rows, ...(rows.length ? [make('div', { className: 'fates' }, ...looks, ...Object.entries(state.about.fates).map(([fate, colour]) => key(colour, fate)))] : []));
  for (const each of state.strips) paintStrip(each);
  const receivers = [...new Set(there().flatMap(({ side }) => side.strips.map((strip) => strip.receiver)))];
  if (receivers.join() !== [...$('receiver').options].map((o) => o.value).join()) {
    $('receiver').replaceChildren(...receivers.map((r) => make('option', { value: r, textContent: r })));
  }
  $('receiver').hidden = receivers.length < 2;
  $('make-film').disabled = !there().some(({ side }) => side.pixels);
}

const quantizer = (q) => mixed('#2166ac', '#c9c4b5', Math.min(1, Math.max(0, (q - 2) / 29)) ** 0.7);

function paintStrip({ canvas, strip }) {
  const width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
  canvas.width = width;
  canvas.height = 22 * devicePixelRatio;
  const g = canvas.getContext('2d');
  const fates = Object.values(state.about.fates);
  const each = Math.max(1.2, width / Math.max(1, strip.t.length));
  for (const bad of [false, true]) { // failures are drawn last, on top
    strip.t.forEach((t, n) => {
      const fate = strip.fate[n];
      if (fate > 0 !== bad) return;
      g.fillStyle = bad ? fates[fate - 1] : strip.mos[n] ? state.about.mos[strip.mos[n]][1] : quantizer(strip.q[n] || 2);
      g.fillRect((t / state.to) * width, 0, each + 0.4, canvas.height);
    });
  }
}

// ---------------------------------------------------------------- what stands under the pointer

function before(times, t) { // the last place whose time is not after t
  let low = 0, high = times.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (times[mid] <= t) low = mid + 1; else high = mid;
  }
  return low - 1;
}

function point(t, fromChart = false) {
  const box = $('pointer');
  if (t === null || t === undefined || !there().length) {
    box.replaceChildren(make('p', { className: 'hint', textContent: 'Move over a chart, or move the time below: what was decided then, and why, stands here.' }));
    return;
  }
  t = Math.min(Math.max(t, state.from), state.to);
  state.t = t;
  const rows = [make('span', { className: 't', textContent: `${t.toFixed(1)} s` })];
  for (const { name, side } of there()) {
    for (const flow of side.decisions.slice(0, 2)) {
      const at = before(flow.t, t);
      if (at < 0) continue;
      const tag = make('span', { className: 'tag', textContent: flow.limit[at] || '' });
      tag.style.background = state.about.limits[flow.limit[at]] || '#9a9a9a';
      const title = make('b', { textContent: there().length > 1 ? `${name} ${flow.title}` : flow.title });
      rows.push(make('p', { className: 'd' }, title, `${flow.target[at]}, limited by `, tag, `: ${flow.why[at]}`, flow.by[at] ? ` · ${flow.by[at]}` : ''));
    }
  }
  const frames = (state.strips || []).map(({ strip, name }) => {
    const at = before(strip.t, t);
    if (at < 0) return null;
    const fate = ['shown', ...Object.keys(state.about.fates)][strip.fate[at]];
    return `${there().length > 1 ? `${name}: ` : ''}${strip.kind[at]} frame, quantizer ${strip.q[at]}, ${fate}${strip.psnr[at] ? `, ${figures(strip.psnr[at])} dB` : ''}`;
  }).filter(Boolean);
  if (frames.length) rows.push(make('p', { className: 'd', textContent: frames.slice(0, 2).join(' · ') }));
  box.replaceChildren(...rows);
  [...$('legend').children].forEach((key) => {
    const { line } = key;
    key.lastChild.value = rate(line.y[Math.max(0, before(line.t, t + (line.t[1] - line.t[0]) / 2 || t))]);
  });
  if (document.activeElement !== $('time')) $('time').value = t;
  if (fromChart) return;
  state.pointing = true;
  for (const { plot, id } of CHARTS) if (plot && !$(id).hidden) plot.setCursor({ left: plot.valToPos(t, 'x'), top: 10 }, false);
  state.pointing = false;
}

$('time').addEventListener('input', () => {
  state.aside = Number($('time').value) < state.to - 0.1;
  point(Number($('time').value));
  seek(state.t);
});

// ---------------------------------------------------------------- sentences and numbers

// The table has all rates of two runs; each video's share and its viewer's score are enough here.
const brief = (says, several) => (several ? says.slice(0, 2).map((each) => (/ got /.test(each) ? `${each.split(';')[0]}.`.replace('..', '.') : each)) : says.slice(0, 3));

function drawSays() {
  const several = there().length > 1;
  const verdict = several && state.verdict;
  const taken = verdict ? [make('p', { textContent: verdict.text }), make('p', { className: 'more', textContent: verdict.rule })] : [];
  $('says').replaceChildren(...taken, ...there().flatMap(({ name, side }) => brief(side.says, several).map((sentence, n) =>
    make('p', { className: n || taken.length ? 'more' : '' }, several && !n ? make('b', { textContent: `${name} ` }) : '', sentence))));
  const warnings = [...new Set(there().flatMap(({ side }) => side.warnings))];
  $('warnings').replaceChildren(warnings.length ? make('ul', {}, ...warnings.map((w) => make('li', { textContent: w }))) : '');
}

function drawNumbers() {
  const sides = there();
  if (!sides.length) return;
  const tables = new Map(); // runs have one head, live sessions one for each kind
  for (const each of sides) tables.set(JSON.stringify(each.side.numbers.heads), [...(tables.get(JSON.stringify(each.side.numbers.heads)) || []), each]);
  $('numbers').replaceChildren(...[...tables.values()].filter((some) => some.some(({ side }) => side.numbers.rows.length)).map((some) => {
    const { heads } = some[0].side.numbers;
    const names = [...new Set(some.flatMap(({ side }) => side.numbers.rows.map((row) => row.flow)))];
    const rows = names.flatMap((flow) => some.map(({ name, side }) => {
      const row = side.numbers.rows.find((each) => each.flow === flow);
      return row && make('tr', { className: name.toLowerCase() }, make('td', {}, sides.length > 1 ? make('b', { textContent: `${name} ` }) : '', row.title), ...row.cells.map((cell) => make('td', { textContent: cell })));
    })).filter(Boolean);
    const head = make('tr', {}, make('th', { textContent: state.about.watch.length ? '' : 'flow' }), ...heads.map(([text, about]) => make('th', { textContent: text, title: about })));
    return make('table', {}, make('thead', {}, head), make('tbody', {}, ...rows));
  }));
  const marks = sides.flatMap(({ name, side }) => side.expect.map((e) => make('li', {}, make('span', { className: e.ok ? 'ok' : 'bad', textContent: e.ok ? 'holds' : 'fails' }), ` ${sides.length > 1 ? `${name}: ` : ''}${e.that}`)));
  $('expect').replaceChildren(marks.length ? make('ul', {}, ...marks) : '');
}

// ---------------------------------------------------------------- the film

const video = $('video');

$('make-film').addEventListener('click', async () => {
  const kind = video.canPlayType('video/mp4; codecs="avc1.42E01E"') ? 'mp4' : 'webm';
  const bar = $('film-progress');
  $('make-film').disabled = true;
  bar.hidden = false;
  bar.removeAttribute('value');
  $('film-note').textContent = '';
  const watch = setInterval(async () => {
    const [what, done, of] = (await (await post('progress', {})).json()).film;
    if (what === 'filming' && of) bar.value = done / of;
  }, 300);
  try {
    const captions = ['original', ...there().map(({ name, n }) => `${name} ${[$('side-a').querySelector('select').value, state.b][n]}`)];
    const answer = await post('film', { base: state.base, text: state.text, b: shown(1) ? state.b : null, kind, receiver: $('receiver').value || null });
    if (!answer.ok || answer.headers.get('content-type').includes('json')) {
      const got = await answer.json();
      $('film-note').textContent = got.problems ? got.problems.map((p) => `${p.what}; ${p.remedy}`).join(' ') : got.newer ? 'A newer one was asked for.' : got.wrong;
      return;
    }
    if (state.film) URL.revokeObjectURL(state.film);
    state.film = URL.createObjectURL(await answer.blob());
    video.src = state.film;
    video.hidden = false;
    const box = document.querySelector('.captions');
    box.hidden = false;
    box.replaceChildren(...captions.map((text) => make('span', { textContent: text })));
    video.addEventListener('loadeddata', () => seek(state.t ?? 0), { once: true });
  } catch { /* the notice tells */ } finally {
    clearInterval(watch);
    bar.hidden = true;
    $('make-film').disabled = !there().some(({ side }) => side.pixels);
  }
});

// The clip's first picture was taken when the flow began.
const began = () => (there()[0] && there()[0].side.strips[0] ? there()[0].side.strips[0].t[0] : 0);

function seek(t) {
  if (state.film && t !== null && video.readyState > 0) video.currentTime = Math.min(Math.max(0, t - began() + 0.001), video.duration || 0);
}

function playing() {
  if (video.paused || video.ended) return;
  point(video.currentTime + began());
  requestAnimationFrame(playing);
}
video.addEventListener('play', playing);

// ---------------------------------------------------------------- what is taken along

async function packed(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream('deflate-raw'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  return btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join('')).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

async function unpacked(code) {
  const bytes = Uint8Array.from(atob(code.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'))).text();
}

$('link').addEventListener('click', async () => {
  const name = state.about.bases[state.base].name;
  history.replaceState(null, '', `#s=${await packed(JSON.stringify({ name, text: state.text, b: state.b }))}`);
  try {
    await navigator.clipboard.writeText(location.href);
    status('', 'the link is in the clipboard and in the address');
  } catch {
    status('', 'the link is in the address');
  }
});

function save(blob, name) {
  const url = URL.createObjectURL(blob);
  make('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const fileName = () => (/^name\s*=\s*"([\w.-]+)"/m.exec(state.text) || [null, 'scenario'])[1];
$('toml').addEventListener('click', () => save(new Blob([state.text], { type: 'application/toml' }), `${fileName()}.toml`));
for (const side of ['a', 'b']) {
  $(`report-${side}`).addEventListener('click', async () => {
    status('busy', 'writing the report');
    const answer = await post('report', { base: state.base, text: state.text, b: state.b, side }).catch(() => null);
    if (!answer) return;
    if (!answer.ok) {
      problems((await answer.json()).problems || []);
      status('wrong', 'no report');
      return;
    }
    save(await answer.blob(), `${fileName()}-${side}.html`);
    status('', 'report saved');
  });
}

$('cancel').addEventListener('click', () => {
  asking.next = null;
  asking.abort.abort();
  post('cancel', {}).catch(() => null);
  status('', 'cancelled');
});

$('reset').addEventListener('click', () => start(state.base));
$('base').addEventListener('change', () => start(Number($('base').value)));

// ---------------------------------------------------------------- the beginning

function start(base, text = null, b = undefined) {
  state.base = base;
  state.edits.clear();
  state.typed += 1;
  const { text: own } = state.about.bases[base];
  if (b === undefined) {
    const a = (/^controller\s*=\s*"([^"]+)"/m.exec(text || own) || [])[1];
    b = state.about.rivals.find((name) => name !== a);
  }
  state.b = b;
  $('base').value = base;
  setText(text ?? own);
  ask();
}

// A live session: its progress, once a second.
async function watch() {
  try {
    const answer = await post('watch', {});
    state.sides = await answer.json();
    drawAll();
    if (!state.aside) point(state.to); // until the pointer is moved to another time
    status('', `live: ${state.about.watch.join(' and ')}`);
  } catch { /* the notice tells; it is tried again */ }
  setTimeout(watch, 1000);
}

async function begin() {
  const behind = new URLSearchParams(location.hash.slice(1));
  state.token = behind.get('token') || given();
  if (behind.get('token')) {
    remember(state.token);
    behind.delete('token');
    history.replaceState(null, '', behind.size ? `#${behind}` : location.pathname);
  }
  const answer = await post('begin', {}).catch(() => null);
  if (!answer) return;
  state.about = await answer.json();
  if (state.about.watch.length) {
    document.body.classList.add('watch');
    watch();
    return;
  }
  $('base').replaceChildren(...state.about.bases.map((each, n) => make('option', { value: n, textContent: each.name })));
  $('base').parentElement.hidden = state.about.bases.length < 2;
  let shared = null;
  if (behind.get('s')) {
    try {
      shared = JSON.parse(await unpacked(behind.get('s')));
      if (typeof shared.text !== 'string') throw new Error();
    } catch {
      shared = null;
      status('wrong', 'the link is damaged');
    }
  }
  if (shared) start(Math.max(0, state.about.bases.findIndex((each) => each.name === shared.name)), shared.text, typeof shared.b === 'string' ? shared.b : null);
  else start(0);
}

$('token-ok').addEventListener('click', () => {
  const typed = $('token').value.trim();
  state.token = tokenIn(typed) ?? typed;
  remember(state.token);
  $('ask-token').close();
  if (state.about) ask(); else begin();
});
addEventListener('hashchange', () => { if (/[#&](s|token)=/.test(location.hash)) begin(); });

let width = 0;
new ResizeObserver(() => {
  if (!state.sides.length || $('rates').clientWidth === width) return;
  width = $('rates').clientWidth;
  drawAll(true);
}).observe($('rates'));

point(null);
begin();
