// Keeps the page of a room true: asks for the place, counts down, and goes in. The page works without it.
'use strict';
const body = document.body;
const status = document.getElementById('status');
const each = (selector, act) => document.querySelectorAll(selector).forEach(act);
/// How long an admitted visitor reads the page before it goes in.
const GO_IN_MS = 3000;
/// How long an answer may take.
const ANSWER_MS = 15000;
/// A stream ends before this.
const STREAM_MS = 90000;
/// How long the page polls after it could not have a stream.
const SILENT_MS = 15000;
/// The most milliseconds between two tries while there is no contact.
const RETRY_MS_MAX = 60000;

let view = JSON.parse(body.dataset.view);
let clockOffsetMs, heardAt, stream, silentUntil = 0, retryTimer, goTimer, failures = 0, announcedAt = 0;

// With work before a join the page has a further script, which does it.
const join = form => self.prove ? prove(form) : form.submit();
const row = element => element.closest('[data-row]') || element;
const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };

function announce(text) {
  announcedAt = Date.now();
  write(status, text);
}

function countDown() {
  const now = Date.now() + clockOffsetMs;
  each('[data-until]', element => {
    const until = view[element.dataset.until];
    row(element).hidden = until == null;
    if (until == null) return;
    const s = Math.max(0, Math.ceil((until - now) / 1000));
    const pad = n => String(n).padStart(2, '0');
    const minutes = Math.floor(s / 60) % 60;
    write(element, s < 3600 ? `${minutes}:${pad(s % 60)}` : `${Math.floor(s / 3600)}:${pad(minutes)}:${pad(s % 60)}`);
  });
  const age = Math.round((Date.now() - heardAt) / 1000);
  const told = new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: 'auto' })
    .format(...(age < 60 ? [-age, 'second'] : [-Math.floor(age / 60), 'minute']));
  each('[data-age]', element => { row(element).hidden = view.poll_after_ms == null; write(element, told); });
}

function show() {
  const before = body.dataset.phase;
  body.dataset.phase = view.phase;
  each('[data-text]', element => {
    const text = view[element.dataset.text];
    row(element).hidden = text == null;
    if (text != null) write(element, text);
  });
  each('[data-in]', element => { element.hidden = !element.dataset.in.split(' ').includes(view.phase); });
  each('[data-go]', element => { element.hidden = view.go == null; if (view.go) element.href = view.go; });
  each('progress', element => { element.hidden = view.progress == null; element.value = view.progress || 0; });
  document.title = view.ahead ? `${view.ahead} · ${view.title}` : view.title;
  // A screen reader hears of each new state at once, and of the place once a minute at most.
  if (before !== view.phase) announce(view.title);
  else if (view.ahead && announcedAt + 60000 < Date.now()) announce(view.ahead);
  countDown();
}

function heard(next) {
  const hadPlace = view.number != null;
  if (next.look !== view.look) return location.reload();
  view = next;
  failures = 0;
  heardAt = Date.now();
  clockOffsetMs = view.now_ms - heardAt;
  // The form and the link of a place come with the whole page.
  if (hadPlace && view.phase === 'join') return location.reload();
  show();
  if (view.phase === 'admitted') goIn();
  if (view.poll_after_ms != null && !listens()) later(view.poll_after_ms);
}

/// Near the front the service tells each change by itself. Returns whether it does.
function listens() {
  if (!view.stream || Date.now() < silentUntil) return silence();
  later(STREAM_MS);
  if (stream) return true;
  stream = new EventSource(body.dataset.events);
  stream.addEventListener('place', event => heard(JSON.parse(event.data)));
  stream.addEventListener('end', event => { silence(); later(JSON.parse(event.data).poll_after_ms); });
  // Refused, or cut off: polls do as well.
  stream.onerror = () => { silentUntil = Date.now() + SILENT_MS; silence(); later(view.poll_after_ms); };
  return true;
}

function silence() {
  if (stream) stream.close();
  stream = null;
  return false;
}

function goIn() {
  // A visitor who looks elsewhere comes back to a slot that still runs, instead of one that was spent unseen.
  clearTimeout(goTimer);
  if (view.go && document.visibilityState === 'visible') goTimer = setTimeout(() => location.replace(view.go), GO_IN_MS);
}

function later(ms) {
  clearTimeout(retryTimer);
  // Spread, so that pages that began together do not ask together.
  retryTimer = setTimeout(ask, ms * (0.9 + Math.random() * 0.2));
}

function lost() {
  failures += 1;
  if (failures === 2) {
    body.dataset.phase = 'lost';
    each('h1', element => write(element, body.dataset.lostTitle));
    each('.lead', element => write(element, body.dataset.lostLead));
    announce(body.dataset.lostTitle);
  }
  later(Math.min(RETRY_MS_MAX, 2000 * 2 ** failures));
}

async function ask() {
  silence();
  if (view.phase === 'full') return join(document.querySelector('form[data-in^=full]'));
  try {
    const answer = await fetch(body.dataset.check, { headers: { accept: 'application/json' }, cache: 'no-store', signal: AbortSignal.timeout(ANSWER_MS) });
    if (!answer.ok) throw answer.status;
    heard(await answer.json());
  } catch {
    lost();
  }
}

each('input[readonly]', element => element.addEventListener('focus', () => element.select()));
document.addEventListener('visibilitychange', () => {
  if (document.visibilityState !== 'visible') return;
  if (view.phase === 'admitted') goIn();
  else if (view.poll_after_ms != null && heardAt + view.poll_after_ms < Date.now()) later(0);
});
setInterval(countDown, 1000);
// The address of a fresh place says nothing to another visitor, or on a later day.
if (location.search.includes('joined=') && view.phase !== 'cookies') history.replaceState(null, '', body.dataset.check);
heard(view);
// The service has not taken the last press of the button: the visitor decides about the next one.
if (view.phase === 'join' && !location.search.includes('asked=')) join(document.querySelector('form[data-in=join]'));
