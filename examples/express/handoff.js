// Takes visitors who come from the page of a room on another host: it redeems the code in `?firstcome_handoff=…`, once, and keeps the pass
// in a cookie of this site. Mount it before the middleware that verifies passes.
'use strict';
const { randomBytes } = require('node:crypto');

const KEY = 'firstcome_handoff_key';

/** @param service the address of firstcome, @param key a service key. */
module.exports = function handoff({ service, key, room }) {
  return async (request, response, next) => {
    const address = new URL(request.originalUrl.replace(/^\/{2,}/, '/'), 'http://site');
    const code = address.searchParams.get('firstcome_handoff');
    if (request.method !== 'GET' || code === null) return next();
    address.searchParams.delete('firstcome_handoff');
    response.set({ 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' });
    const cookie = { httpOnly: true, sameSite: 'lax', secure: request.secure, path: '/' };
    // The same key again after a lost answer: only then does the code count again.
    const once = new RegExp(`(?:^|;\\s*)${KEY}=([0-9a-f]{32})`).exec(request.headers.cookie ?? '')?.[1] ?? randomBytes(16).toString('hex');
    try {
      const told = await fetch(`${service}/v1/rooms/${room}/handoffs`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'idempotency-key': once, 'content-type': 'application/json' },
        body: JSON.stringify({ code }),
        signal: AbortSignal.timeout(5_000),
      });
      if (told.status === 401 || told.status === 429 || told.status >= 500) throw new Error(String(told.status));
      const { pass, slot_ends_at: end } = await told.json();
      // A code that was used or is over brings no pass: the next middleware leads to the page of the room.
      if (pass) response.cookie('firstcome_pass', pass, { ...cookie, expires: new Date(end) });
      response.clearCookie(KEY, cookie);
    } catch {
      response.cookie(KEY, once, { ...cookie, maxAge: 60_000 });
      return response.status(503).set({ 'retry-after': '5', refresh: '5' }).json({ code: 'store_unavailable' });
    }
    return response.redirect(303, address.pathname + address.search);
  };
};
