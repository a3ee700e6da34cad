// Checks a receipt as docs/rooms.md describes it: signatures, the heads that it names, and what lies between them.
'use strict';
const form = document.getElementById('check');
const told = document.getElementById('told');
const facts = document.getElementById('facts');
const NONE = '0'.repeat(64);

const encode = text => new TextEncoder().encode(text);
const bytes = hexadecimal => Uint8Array.from(hexadecimal.match(/../g) || [], pair => parseInt(pair, 16));
const hexadecimal = buffer => Array.from(new Uint8Array(buffer), byte => byte.toString(16).padStart(2, '0')).join('');
const sha256 = async text => hexadecimal(await crypto.subtle.digest('SHA-256', encode(text)));

class Wrong extends Error {}
const need = (holds, says) => { if (!holds) throw new Wrong(says); };

/// One signed text: its first line, its other lines by name, what was signed, and the signature.
function paragraph(text) {
  const lines = text.replace(/\n$/, '').split('\n');
  const last = lines.pop();
  need(/^signature [0-9a-f]{128}$/.test(last), 'a text has no signature');
  const values = new Map(lines.slice(1).map(line => [line.split(' ', 1)[0], line.slice(line.indexOf(' ') + 1)]));
  need(values.size === lines.length - 1, 'a line stands twice');
  return { kind: lines[0], values, signed: lines.join('\n') + '\n', signature: last.slice(10) };
}

/// The key and the signed texts of a file. A file of heads may have several pages.
function parse(text) {
  need(!text.includes('\r') && text.startsWith('key '), 'this is no receipt and no page of heads');
  const keys = new Set(text.match(/^key .*$/gm));
  need(keys.size === 1, 'the file has texts of several keys');
  const key = [...keys][0].slice(4);
  need(/^[0-9a-f]{64}$/.test(key), 'the key is none');
  const rest = text.replace(/^key .*\n/gm, '').replace(/^\n/, '');
  return { key, texts: rest ? rest.split('\n\n').map(paragraph) : [] };
}

const NUMBERS = ['sequence', 'at_us', 'first', 'given', 'front', 'limit', 'issued'];

async function head(text) {
  need(text.kind === 'firstcome head 1', 'a head is missing');
  const { values } = text;
  const head = { object: object(values), digest: await sha256(text.signed), previous: values.get('previous') };
  for (const name of NUMBERS) {
    if (values.has(name)) head[name] = BigInt(values.get(name));
  }
  need(head.sequence > 0n && head.at_us !== undefined && head.previous, 'a head lacks a line');
  head.count = head.given === undefined ? head.issued : head.given;
  need(head.count !== undefined, 'a head lacks a line');
  return head;
}

const object = values => values.has('room') ? `room ${values.get('room')}` : `coupon ${values.get('coupon')}`;

function follows(next, before) {
  need(next.object === before.object, 'the heads are about different rooms or coupons');
  need(next.sequence === before.sequence + 1n, 'a head is missing');
  need(next.previous === before.digest, 'a head names another head as the one before it: the service published two chains');
  for (const name of ['at_us', 'first', 'given', 'front', 'issued']) {
    need(next[name] === undefined || next[name] >= before[name], 'a count or a time is lower than in the head before');
  }
}

async function verified(key, texts) {
  const imported = await crypto.subtle.importKey('raw', bytes(key), { name: 'Ed25519' }, false, ['verify']);
  for (const { signed, signature } of texts) {
    const fits = await crypto.subtle.verify({ name: 'Ed25519' }, imported, bytes(signature), encode(signed));
    need(fits, 'a signature does not fit the key: the text was changed');
  }
}

/// Takes the two heads of a link from the list, and checks them.
function pair(heads, cover, about) {
  const [sequence, digest] = cover.split(' ');
  const first = heads.shift();
  need(first, 'a head is missing');
  const alone = first.sequence === BigInt(sequence);
  const before = alone ? null : first, by = alone ? first : heads.shift();
  need(by && by.digest === digest && by.sequence === BigInt(sequence), 'the statement names another head');
  need(by.object === about, 'the texts are about different rooms or coupons');
  if (before) follows(by, before);
  else need(by.sequence === 1n && by.previous === NONE, 'a head is missing');
  return { before, by };
}

const shown = us => new Date(Number(us / 1000n)).toISOString();

async function judge(text) {
  const { key, texts } = parse(text);
  need(texts.length > 1 && texts[0].kind === 'firstcome receipt 1', 'this is no receipt');
  await verified(key, texts);
  const { values } = texts[0];
  const about = object(values);
  const heads = await Promise.all(texts.slice(1).map(head));
  const all = [...heads];
  const number = BigInt(values.get('number') || values.get('serial'));
  const given = pair(heads, values.get('by'), about);
  need(number <= given.by.count && number > (given.before ? given.before.count : 0n), 'the number was not given between the two heads that the receipt names');
  const rows = [['About', about], ['Number', String(number)]];
  rows.push(['Given', given.before ? `between ${shown(given.before.at_us)} and ${shown(given.by.at_us)}` : `until ${shown(given.by.at_us)}`]);
  if (values.has('issued_at_us')) {
    const at = BigInt(values.get('issued_at_us'));
    need(at <= given.by.at_us && (!given.before || given.before.at_us <= at), 'the claim was not issued between the two heads that the receipt names');
    rows.push(['User', values.get('user')], ['Issued', shown(at)]);
  }
  if (values.has('turn')) {
    const turn = BigInt(values.get('turn')), at = BigInt(values.get('admitted_at_us'));
    const inside = pair(heads, values.get('admitted_by'), about);
    need(at < inside.by.at_us && (!inside.before || inside.before.at_us <= at), 'the admission did not happen between the two heads that the receipt names');
    need(turn < inside.by.front, 'the ticket was admitted before the line had reached its turn');
    rows.push(['Turn', String(turn)], ['Admitted', shown(at)]);
  }
  need(heads.length === 0, 'there is a head too many');
  rows.push(['Signed with the key', key]);
  return { key, heads: all, rows };
}

/// Compares the heads of a receipt with saved ones, which must be a chain.
async function confirm(receipt, files) {
  const saved = new Map();
  for (const file of files) {
    const { key, texts } = parse(await file.text());
    need(key === receipt.key, 'the receipt was signed by another key than the heads');
    await verified(key, texts);
    let before = null;
    for (const text of texts) {
      const next = await head(text);
      if (before) follows(next, before);
      const known = saved.get(next.sequence);
      need(!known || known === next.digest, `the service signed two different heads ${next.sequence}: keep both files, they prove it`);
      saved.set(next.sequence, next.digest);
      before = next;
    }
  }
  let confirmed = 0;
  for (const { sequence, digest } of receipt.heads) {
    const known = saved.get(sequence);
    need(!known || known === digest, `the service signed two different heads ${sequence}: keep both files, they prove it`);
    confirmed += known ? 1 : 0;
  }
  return confirmed;
}

async function check() {
  if (!window.crypto || !crypto.subtle) throw new Error('This browser checks signatures only on pages over https.');
  const receipt = await judge(await form.receipt.files[0].text());
  const files = [...form.heads.files];
  if (files.length) receipt.rows.push(['Heads among the saved ones', `${await confirm(receipt, files)} of ${receipt.heads.length}`]);
  return receipt.rows;
}

function show(rows) {
  facts.replaceChildren(...rows.map(([name, value]) => {
    const row = document.createElement('div'), term = document.createElement('dt'), what = document.createElement('dd');
    term.textContent = name;
    what.textContent = value;
    row.append(term, what);
    return row;
  }));
  facts.hidden = rows.length === 0;
}

form.addEventListener('submit', event => {
  event.preventDefault();
  told.textContent = 'Checking …';
  show([]);
  check().then(rows => {
    told.textContent = 'The receipt is genuine.';
    show(rows);
  }, error => {
    told.textContent = error instanceof Wrong ? `Wrong: ${error.message}.`
      : error.name === 'NotSupportedError' ? 'This browser does not know Ed25519 signatures. The program below does.'
      : error.name === 'SyntaxError' || error.name === 'TypeError' ? 'Wrong: this is no receipt.' : error.message;
  });
});
