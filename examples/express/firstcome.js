// Lets a visitor with a valid pass of a waiting room through. It verifies passes without a call to firstcome: see docs/rooms.md.
'use strict';
const { createPublicKey, verify } = require('node:crypto');

const HEADER = 'v4.public.';
const KNOWN_MAX = 10_000;
/** A list that was asked for this long after an admission has it. */
const SPREAD_MS = 2_000;

/** What PASETO signs, as its specification says under "Pre-Authentication Encoding". */
function encoded(parts) {
  const size = (count) => { const bytes = Buffer.alloc(8); bytes.writeBigUInt64LE(BigInt(count)); return bytes; };
  return Buffer.concat([size(parts.length), ...parts.flatMap((part) => [size(part.length), part])]);
}

/**
 * @param service the address of firstcome, @param key a service key, @param page where visitors without a pass go,
 * @param failOpen whether visitors come in without a pass once firstcome was away for graceMs; otherwise none does.
 */
module.exports = function firstcome({ service, key, room, page = `/rooms/${room}`, graceMs = 30_000, failOpen = false }) {
  const known = new Map(); // A signature is verified once.
  let keys = '', signers = new Map(), domain = '', tag = '', live = new Set(), asOf = 0, freshAt = -Infinity;

  async function ask(path, headers) {
    const told = await fetch(service + path, { headers: { authorization: `Bearer ${key}`, ...headers }, signal: AbortSignal.timeout(2_000) });
    if (!told.ok && told.status !== 304) throw new Error(`${path}: ${told.status}`);
    return told;
  }
  async function refresh() {
    const sentAt = performance.now();
    const text = await (await ask('/v1/pass-keys', {})).text();
    if (text !== keys) { // Passes of a key that is gone are void.
      const { items, implicit_assertion: assertion } = JSON.parse(text);
      const jwk = (item) => ({ kty: 'OKP', crv: 'Ed25519', x: item.public_key.slice('k4.public.'.length) });
      signers = new Map(items.map((item) => [item.kid, createPublicKey({ key: jwk(item), format: 'jwk' })]));
      [keys, domain] = [text, assertion];
      known.clear();
    }
    const told = await ask(`/v1/rooms/${room}/passes`, tag ? { 'if-none-match': tag } : {});
    if (told.status === 200) live = new Set((await told.json()).items.map(String));
    [tag, asOf, freshAt] = [told.headers.get('etag'), Date.parse(told.headers.get('x-firstcome-as-of')), sentAt];
  }
  (async function forever() {
    await refresh().catch(() => {}); // The age of the list says how long it has failed.
    setTimeout(forever, 1_000).unref();
  })();

  function read(pass) {
    const [payload, footer] = pass.slice(HEADER.length).split('.').map((part) => Buffer.from(part, 'base64url'));
    const [message, signature] = [payload.subarray(0, -64), payload.subarray(-64)];
    const signer = signers.get(JSON.parse(footer).kid);
    const signed = encoded([HEADER, message, footer, domain].map((part) => Buffer.from(part)));
    if (!signer || !verify(null, signed, signer, signature)) throw new Error('forged');
    if (known.size >= KNOWN_MAX) known.clear();
    const claims = JSON.parse(message);
    known.set(pass, claims);
    return claims;
  }
  function grant(request) {
    const cookie = /(?:^|;\s*)firstcome_pass=([^;]*)/.exec(request.headers.cookie ?? '');
    const pass = request.headers['x-firstcome-pass'] ?? cookie?.[1] ?? '';
    try {
      const claims = pass.startsWith(HEADER) && pass.length <= 1_024 && (known.get(pass) ?? read(pass));
      const isLive = claims && (live.has(`${claims.number},${claims.slot}`) || asOf < Date.parse(claims.iat) + SPREAD_MS);
      return isLive && claims.room === room && Date.now() < Date.parse(claims.exp) ? claims : null;
    } catch { return null; }
  }

  return (request, response, next) => {
    const isAway = performance.now() - freshAt > graceMs;
    request.firstcome = isAway && !failOpen ? null : grant(request);
    if (request.firstcome || (isAway && failOpen)) return next();
    response.set('cache-control', 'no-store');
    if (isAway) return response.status(503).set('retry-after', '5').json({ code: 'store_unavailable' });
    if (request.accepts(['html', 'json']) === 'json') return response.status(401).json({ code: 'no_pass' });
    return response.redirect(303, `${page}?back=${encodeURIComponent(request.originalUrl)}`);
  };
};
