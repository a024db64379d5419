// The page of a served source: it plays what comes, and shows why it comes at that rate.

import { freezes } from './freezes.js';
import { $, css, figures, given, make, rate, remember, tokenIn } from './shared.js';

const STREAM = 'whep/video'; // relative, because a proxy may serve the page below a path
const WINDOW = 60; // seconds
const RECENT = 5;
const EVERY = 500; // ms
const ASKED = new URLSearchParams(location.search);
const PLAYOUT = Number(ASKED.get('playout')); // ms
const state = { token: '', about: null, pc: null, place: '', rows: [], ours: null, counted: null, looking: false };

// ---------------------------------------------------------------- the server

async function ask(path, how = {}) {
  const headers = { ...(state.token ? { authorization: `Bearer ${state.token}` } : {}), ...how.headers };
  const answer = await fetch(path, { ...how, headers });
  if (answer.status === 401) {
    $('token-wrong').hidden = !state.token;
    if (!$('ask-token').open) $('ask-token').showModal();
    throw new Error('token');
  }
  return answer;
}

function notice(text) {
  const parts = text.split(/(--\w+)/); // an option is not broken behind its hyphens
  $('notice').replaceChildren(...parts.map((part) => (part.startsWith('--') ? make('code', { textContent: part }) : part)));
  $('notice').hidden = !text;
}

function status(kind, text) {
  $('status').className = kind;
  $('status').lastElementChild.textContent = text;
}

// ---------------------------------------------------------------- the session

// `known` resolves when the server has announced itself: the offer is made meanwhile.
async function play(known) {
  leave();
  notice('');
  status('busy', 'asking');
  const pc = new RTCPeerConnection();
  // Both tracks are in one element, so that the browser plays them in sync.
  const media = new MediaStream();
  Object.assign(state, { pc, ours: freezes(), rows: [], counted: null, heard: null });
  $('sound').hidden = true;
  pc.addTransceiver('video', { direction: 'recvonly' });
  pc.addTransceiver('audio', { direction: 'recvonly' });
  pc.addEventListener('track', ({ track, receiver }) => {
    // The browser waits as long as retransmissions take, of which it is not informed.
    if (PLAYOUT > 0) receiver.jitterBufferTarget = Math.min(PLAYOUT, 4000);
    media.addTrack(track);
    if (track.kind === 'audio') $('sound').hidden = false; // a source without sound rejects the audio section
    $('video').srcObject = media;
    $('video').play().catch(() => null); // a browser that wants to be asked shows its own button
  });
  pc.addEventListener('connectionstatechange', told);
  const offer = await pc.createOffer();
  await pc.setLocalDescription({ type: 'offer', sdp: inStereo(offer.sdp) });
  await known;
  const answer = await ask(`${STREAM}?controller=${encodeURIComponent($('controller').value)}`, {
    method: 'POST', headers: { 'content-type': 'application/sdp' }, body: pc.localDescription.sdp,
  });
  const place = answer.headers.get('location');
  if (pc !== state.pc) { // another one was asked for meanwhile
    if (place) end(place);
    return;
  }
  if (!answer.ok) throw new Error((await answer.json()).wrong);
  state.place = place;
  await pc.setRemoteDescription({ type: 'answer', sdp: await answer.text() });
}

// Chromium decodes Opus to one channel unless its offer asks for two (RFC 7587, section 6.1).
const inStereo = (sdp) => sdp.replace(/^a=fmtp:\d+ (?=.*useinbandfec=)(?!.*\bstereo=1).*$/gm, '$&;stereo=1');

const end = (place) => ask(place, { method: 'DELETE', keepalive: true }).catch(() => null);

function leave() {
  if (state.pc) state.pc.close();
  if (state.place) end(state.place);
  Object.assign(state, { pc: null, place: '' });
}

const start = (known) => play(known).catch((error) => {
  if (error.message === 'token') return;
  status('wrong', 'no video');
  notice(error.message);
});

// The list shows only the first characters of an ID, because the whole ID can end the session.
const isOwn = (viewer) => state.place.split('/').pop().startsWith(viewer.id);
const own = () => (state.place && state.about && state.about.viewers.find(isOwn)) || {};

function told() {
  const viewer = own(), here = state.pc ? state.pc.connectionState : 'closed';
  if (viewer.state === 'ended') {
    status('wrong', 'ended');
    notice(viewer.ended_by || 'The source has ended: "play again" begins it again.');
  } else if (here === 'connected') {
    const absent = unpublished();
    if (absent) status('busy', 'waiting for a publisher');
    else status('', `live, by ${viewer.controller || $('controller').value}`);
    notice(absent || slow());
  } else if (here === 'failed') {
    status('wrong', 'no connection');
    notice(unreached());
  } else if (state.place) {
    status('busy', here === 'new' ? 'connecting' : here);
  }
}

// Returns a message if the source is a publisher, and none sends.
function unpublished() {
  const { publisher } = state.about || {};
  if (!publisher || publisher.state === 'connected') return '';
  if (publisher.state === 'checking' || publisher.state === 'connecting') return 'A publisher is connecting.';
  const left = { ended: 'The publisher has left', silent: 'The publisher has been silent for some seconds' }[publisher.state];
  return left ? `${left}. The video continues when a publisher sends again.` : 'There is no publisher yet. The video begins when a publisher sends.';
}

// Returns a message if the encoders were too slow for a rung, or for some recent pictures.
function slow() {
  const { rungs, rungs_at_start: planned } = state.about || {};
  const given = rungs && rungs.length && rungs.length < planned ? `The encoders fell behind, and ${rungs.length} of ${planned} rungs are left, up to ${rate(rungs[0].bps)}. ` : '';
  const last = state.rows.at(-1), before = state.rows.find((row) => last && row.t > last.t - RECENT);
  const left = before ? (last.left ?? 0) - (before.left ?? 0) : 0;
  return given + (left >= 2 * RECENT ? `The encoder is too slow: ${left} pictures were left out in the last ${RECENT} s. Serve with a smaller --size or --fps${state.about.publisher ? '' : ', or with --ladder'}.` : '');
}

// Returns a message with the address of the sender's only candidate.
function unreached() {
  const found = state.pc.remoteDescription && /^a=candidate:\S+ \d+ udp \d+ (\S+) (\d+) /m.exec(state.pc.remoteDescription.sdp);
  const own = found && /^(127\.|::1$)/.test(found[1]) ? ' Firefox never reaches its own machine by this address: serve with --listen at another one.' : '';
  return found ? `This browser does not reach UDP port ${found[2]} of ${found[1]}.${own}` : '';
}

// ---------------------------------------------------------------- freezes of what is shown

function shown(now, frame) {
  if (state.ours) state.ours.shown(frame.expectedDisplayTime);
  $('video').requestVideoFrameCallback(shown);
}
if ('requestVideoFrameCallback' in HTMLVideoElement.prototype) $('video').requestVideoFrameCallback(shown);
// A tab in the background shows no picture, and a viewer who pauses sees none: neither is a freeze.
const apart = () => { if (state.ours) state.ours.last = null; };
document.addEventListener('visibilitychange', apart);
$('video').addEventListener('play', apart);

// ---------------------------------------------------------------- what is known, twice a second

async function look() {
  try {
    const [answer, stats] = await Promise.all([ask('api/viewers'), state.pc ? state.pc.getStats() : new Map()]);
    state.about = await answer.json();
    const inbound = [...stats.values()].find((each) => each.type === 'inbound-rtp' && each.kind === 'video') || {};
    const viewer = own(), now = performance.now() / 1000;
    state.counted = inbound;
    state.heard = [...stats.values()].find((each) => each.type === 'inbound-rtp' && each.kind === 'audio') || null;
    state.rows.push({
      t: now, target: viewer.target_bps, rate: viewer.rate_bps, rtt: viewer.rtt_ms, loss: percent(viewer.loss_frac),
      left: viewer.left_out, theirs: inbound.freezeCount, ours: state.ours ? state.ours.count : null,
    });
    while (state.rows[0].t < now - WINDOW - 2) state.rows.shift();
    told();
    draw(viewer, now);
  } catch (error) {
    if (error instanceof TypeError) {
      status('wrong', 'not connected');
      notice('The server has ended. Start "steadycast serve" again.');
    }
  }
  setTimeout(look, EVERY);
}

// ---------------------------------------------------------------- the page

const is = (v) => v !== null && v !== undefined;
const percent = (v) => (is(v) ? v * 100 : null);
const said = (v, unit) => (is(v) ? `${figures(v)} ${unit}` : '–');
const many = (n, one) => `${n ?? 0} ${one}${n === 1 ? '' : 's'}`;
const sound = (heard) => {
  if (!heard || !heard.packetsReceived) return 'none';
  const concealed = heard.totalSamplesReceived ? heard.concealedSamples / heard.totalSamplesReceived : 0;
  return `${many(heard.packetsLost, 'packet')} lost, ${figures(concealed * 100, 2)} % concealed`;
};
const CHARTS = [
  { id: 'rates', title: 'rate', height: 150, least: 1e5, say: rate, lines: [['target', 'target', 'muted', [6, 4]], ['rate', 'sent', 'accent']] },
  { id: 'rtt', title: 'round trip', height: 110, say: (v) => said(v, 'ms'), lines: [['rtt', 'round trip', 'accent']] },
  { id: 'loss', title: 'loss, as reported', height: 110, say: (v) => said(v, '%'), lines: [['loss', 'loss', 'accent']] },
  { id: 'freezes', title: 'freezes so far', height: 110, say: (v) => (Number.isInteger(v) ? `${v}` : ''), lines: [['theirs', 'as the browser counts', 'accent'], ['ours', 'by what was shown', 'muted', [6, 4]]] },
];

function draw(viewer, now) {
  for (const chart of CHARTS) drawChart(chart, now);
  $('why').textContent = (viewer.state !== 'ended' && viewer.why) || '';
  $('rung').textContent = rungSaid(viewer);
  $('rung').hidden = !$('rung').textContent;
  const { counted: c, ours, heard } = state;
  const all = [
    ['picture', c.frameWidth ? `${c.frameWidth}×${c.frameHeight}, ${c.framesPerSecond ?? 0} a second` : '–'],
    ['sent', rate(viewer.rate_bps)],
    ['target', rate(viewer.target_bps)],
    ['round trip', said(viewer.rtt_ms, 'ms')],
    ['frozen, as the browser counts', `${many(c.freezeCount, 'time')}, ${said(c.totalFreezesDuration, 's')}`],
    ['frozen, by what was shown', ours ? `${many(ours.count, 'time')}, ${said(ours.time, 's')}` : '–'],
    ['frames', `${c.framesDecoded ?? 0} decoded, ${c.framesDropped ?? 0} dropped`],
    ['asked for', `${many(c.nackCount, 'packet')}, ${many(c.pliCount, 'key frame')}`],
    ['sent again', many(viewer.again, 'packet')],
    ['sound', sound(heard)],
  ];
  $('numbers').replaceChildren(...all.map(([name, value]) => make('div', {}, make('dt', { textContent: name }), make('dd', { textContent: value }))));
  drawViewers();
}

const RUNG_REASONS = {
  first: () => 'the first that fitted the rate',
  kept: (finer) => (finer ? `the next finer one needs up to ${finer}, which does not fit` : 'there is no finer one'),
  waits: (finer) => (finer ? `the next finer one needs up to ${finer}, which the rate has to carry for longer` : 'there is no finer one'),
  climbed: () => 'the rate has carried it for long enough',
  backlog: () => 'a finer one made the queue at the sender too long',
  'rate-fell': () => 'the rate no longer carried a finer one',
};

// Returns a sentence about the rung of a source that is encoded once for all viewers.
function rungSaid({ rung, size, state: now }) {
  if (!rung || !rung.rungs || now === 'ended') return '';
  const reason = (RUNG_REASONS[rung.why] || RUNG_REASONS.kept)(is(rung.finer_bps) ? rate(rung.finer_bps) : null);
  const picture = size ? `${size.width}×${size.height}, ` : '';
  return `All viewers share ${many(rung.rungs, 'rung')}. Yours is number ${rung.rung + 1} from the finest (${picture}up to ${rate(rung.need_bps)}): ${reason}. It changed ${many(rung.switches, 'time')}.`;
}

function drawViewers() {
  const { viewers, places, source, codec, rungs, rungs_at_start: planned } = state.about;
  const { publisher } = state.about;
  const origin = publisher && publisher.size ? `${publisher.codec} ${publisher.size.width}×${publisher.size.height} by WHIP, as ` : '';
  const encoded = rungs && rungs.length ? `, ${rungs.length === planned ? many(planned, 'rung') : `${rungs.length} of ${planned} rungs`}` : '';
  $('source').textContent = `${source.split('/').pop()}, ${origin}${codec}${encoded}`;
  $('places').textContent = `${viewers.filter((each) => each.state !== 'ended').length} of ${many(places, 'place')}`;
  const heads = ['viewer', 'state', 'from', 'controller', 'sent', 'target', 'round trip', 'loss', 'rung', 'why'];
  $('viewers').replaceChildren(
    make('thead', {}, make('tr', {}, ...heads.map((text) => make('th', { textContent: text })))),
    make('tbody', {}, ...viewers.map((each) => {
      const here = isOwn(each);
      const cells = [
        here ? `${each.name} (here)` : each.name, each.state, each.address || '–', each.controller, rate(each.rate_bps),
        rate(each.target_bps), said(each.rtt_ms, 'ms'), said(percent(each.loss_frac), '%'), each.rung && each.rung.rungs ? `${each.rung.rung + 1} of ${each.rung.rungs}` : '–', each.ended_by || (each.state === 'ended' ? 'has left' : each.why),
      ];
      return make('tr', { className: here ? 'here' : each.state === 'ended' ? 'gone' : '' }, ...cells.map((text, k) => {
        const cell = make('td', { textContent: text });
        cell.dataset.head = heads[k];
        return cell;
      }));
    })),
  );
}

function drawChart(chart, now) {
  const box = $(chart.id);
  const data = [state.rows.map((row) => row.t - now), ...chart.lines.map(([key]) => state.rows.map((row) => row[key] ?? null))];
  const look = `${box.clientWidth} ${css('ink')}`;
  if (chart.plot && chart.look === look) {
    chart.plot.setData(data);
    return;
  }
  chart.look = look;
  if (chart.plot) chart.plot.destroy();
  box.setAttribute('role', 'img');
  box.setAttribute('aria-label', `${chart.title}, the last ${WINDOW} seconds`);
  box.replaceChildren(make('h3', { textContent: chart.title }));
  if (chart.lines.length > 1) {
    $(`${chart.id}-key`).replaceChildren(...chart.lines.map(([, name, colour, dash]) => {
      const key = make('span', { className: `key${dash ? ' b' : ''}` }, make('i'), name);
      key.firstChild.style.borderColor = css(colour);
      return key;
    }));
  }
  const axis = { stroke: css('muted'), grid: { stroke: css('grid'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
  chart.plot = new uPlot({
    width: box.clientWidth,
    height: chart.height,
    padding: [16, 20, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: false, range: () => [-WINDOW, 0] }, y: { range: (u, low, high) => [0, (high > 0 ? high : chart.least || 1) * 1.12] } },
    axes: [
      { ...axis, size: 24, gap: 2, values: (u, ticks) => ticks.map((t) => (t === 0 ? 'now' : `${t} s`)) },
      { ...axis, size: parseInt(css('edge'), 10), gap: 4, space: 26, values: (u, ticks) => ticks.map((v) => (v === 0 ? '0' : chart.say(v).replace(' ', '\u2009'))) },
    ],
    series: [{}, ...chart.lines.map(([, , colour, dash]) => ({ stroke: css(colour), width: dash ? 1.6 : 2.4, dash, points: { show: false } }))],
  }, data, box);
}

// ---------------------------------------------------------------- the beginning

function begin() {
  const printed = tokenIn(location.hash);
  state.token = printed ?? given();
  if (printed) {
    remember(printed);
    history.replaceState(null, '', location.pathname + location.search);
  }
  const known = ask('api/viewers').then(learn);
  start(known);
  known.then(() => {
    if (!state.looking) look();
    state.looking = true;
  }, () => null); // the page that plays reports the error
}

async function learn(answer) {
  state.about = await answer.json();
  const asked = ASKED.get('controller');
  $('controller').replaceChildren(...state.about.controllers.map((name) => make('option', { value: name, textContent: name })));
  $('controller').value = state.about.controllers.includes(asked) ? asked : state.about.controller;
}

$('controller').addEventListener('change', () => start());
$('again').addEventListener('click', () => start());
// Browsers let a page play sound only after the viewer has clicked, so that it begins muted.
$('sound').addEventListener('click', () => { $('video').muted = !$('video').muted; });
$('video').addEventListener('volumechange', () => { $('sound').textContent = $('video').muted ? 'unmute' : 'mute'; });
$('token-ok').addEventListener('click', () => {
  const typed = $('token').value.trim();
  remember(tokenIn(typed) ?? typed);
  $('ask-token').close();
  begin();
});
addEventListener('hashchange', () => { if (tokenIn(location.hash)) begin(); });
addEventListener('pagehide', leave);
addEventListener('pageshow', (event) => { if (event.persisted) start(); });

begin();
