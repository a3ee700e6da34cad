// Computes a place of a draw from its public record: firstcome-draw-1, as docs/design/room.md describes it.
'use strict';
const ROUNDS = 10;
const DOMAIN = new TextEncoder().encode('firstcome draw 1\0');
const draw = JSON.parse(document.body.dataset.draw);
const told = document.getElementById('told');
const form = document.getElementById('check');

const bytes = hexadecimal => Uint8Array.from(hexadecimal.match(/../g), pair => parseInt(pair, 16));
const hexadecimal = buffer => Array.from(new Uint8Array(buffer), byte => byte.toString(16).padStart(2, '0')).join('');

/// The values of one round, below the modulus.
async function table(key, round, inputs, modulus) {
  const value = async right => {
    const message = new Uint8Array(DOMAIN.length + 13);
    const view = new DataView(message.buffer, DOMAIN.length);
    message.set(DOMAIN);
    view.setUint32(0, draw.first);
    view.setUint32(4, draw.entrants);
    view.setUint8(8, round);
    view.setUint32(9, right);
    const mac = new DataView(await crypto.subtle.sign('HMAC', key, message));
    return Number(mac.getBigUint64(0) % BigInt(modulus));
  };
  return Promise.all(Array.from({ length: inputs }, (_, right) => value(right)));
}

/// The place of an index, both from 0.
async function place(index) {
  const columns = Math.ceil(Math.sqrt(draw.entrants));
  const rows = Math.ceil(draw.entrants / columns);
  const key = await crypto.subtle.importKey('raw', bytes(draw.seed), { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
  const tables = [];
  for (let round = 1; round <= ROUNDS; round++) {
    tables.push(await (round % 2 ? table(key, round, rows, columns) : table(key, round, columns, rows)));
  }
  do {
    let [left, right] = [index % columns, Math.floor(index / columns)];
    tables.forEach((values, at) => {
      [left, right] = [right, (left + values[right]) % (at % 2 ? rows : columns)];
    });
    index = columns * right + left;
  } while (draw.entrants <= index);
  return index;
}

async function check() {
  const number = Number(form.number.value), kept = form.commitment.value.trim().toLowerCase();
  if (!window.crypto || !crypto.subtle) return 'This browser computes hashes only on pages over https.';
  const fingerprint = hexadecimal(await crypto.subtle.digest('SHA-256', bytes(draw.seed)));
  if (fingerprint !== draw.commitment) return 'Wrong: the seed is not the one of the fingerprint.';
  if (kept && kept !== fingerprint) return 'Wrong: the fingerprint is not the one that you kept.';
  if (number < draw.first) return `Number ${number} was not in this draw.`;
  if (draw.first + draw.entrants <= number) return `Number ${number} joined after the draw: it comes behind.`;
  const found = await place(number - draw.first) + 1;
  return `The seed fits the fingerprint. Number ${number} has place ${found} of ${draw.entrants}.`;
}

if (form) {
  form.addEventListener('submit', event => {
    event.preventDefault();
    told.textContent = 'Computing …';
    check().then(text => { told.textContent = text; }, () => { told.textContent = 'The browser could not compute it.'; });
  });
}
