// Earns a place by work: finds a nonce so that the SHA-256 of `challenge.nonce` begins with zero bits. The page loads this
// before its own script, and this script loads itself once more as the worker that computes.
'use strict';
(() => {
  /// Nonces have this many digits, so that challenge, full stop and nonce are 13 whole words of the one block to hash.
  const FIRST_NONCE = 1e10;
  const TRIES = 1 << 14;

  /// The first 32 bits of the fraction of a root, as SHA-256 takes its constants from primes.
  const fraction = root => (root - Math.floor(root)) * 0x100000000 | 0;
  const primes = [];
  for (let number = 2; primes.length < 64; number++) if (primes.every(prime => number % prime)) primes.push(number);
  const START = Int32Array.from(primes.slice(0, 8), prime => fraction(Math.sqrt(prime)));
  const ROUNDS = Int32Array.from(primes, prime => fraction(Math.cbrt(prime)));

  /// The first word of the SHA-256 of a block whose first 16 words are given; `words` has room for 64.
  function firstWord(words) {
    for (let at = 16; at < 64; at++) {
      const x = words[at - 15], y = words[at - 2];
      words[at] = words[at - 16] + words[at - 7]
        + ((x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3)
        + ((y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10);
    }
    let [a, b, c, d, e, f, g, h] = START;
    for (let at = 0; at < 64; at++) {
      const one = h + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + (e & f ^ ~e & g) + ROUNDS[at] + words[at] | 0;
      const two = ((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + (a & b ^ a & c ^ b & c) | 0;
      h = g; g = f; f = e; e = d + one | 0; d = c; c = b; b = a; a = one + two | 0;
    }
    return START[0] + a | 0;
  }

  /// Tries nonces until one will do, and posts how many it has tried, and then the solution.
  function compute({ challenge, bits }) {
    const words = new Int32Array(64);
    const block = text => { for (let at = 0; at < text.length; at++) words[at >> 2] = words[at >> 2] << 8 | text.charCodeAt(at); };
    for (let tried = 0; ; tried++) {
      const solution = `${challenge}.${FIRST_NONCE + tried}`;
      block(solution);
      words[13] = 0x80000000;
      words[14] = 0;
      words[15] = 52 * 8;
      if (bits <= Math.clz32(firstWord(words))) return postMessage({ solution });
      if (tried % TRIES === 0) postMessage({ tried });
    }
  }

  if (!self.document) {
    self.onmessage = event => compute(event.data);
    return;
  }

  const says = document.getElementById('work');
  const script = document.currentScript.src;
  let begun = false;

  /// Joins by a form of the page, once a challenge is solved; without a worker once the wait is over that stands for it.
  async function prove(form) {
    if (begun) return;
    begun = true;
    says.textContent = says.dataset.busy;
    const address = new URL(form.action);
    const send = shown => {
      address.searchParams.set('work', shown);
      form.action = address;
      form.submit();
    };
    try {
      address.searchParams.delete('work');
      const asked = await fetch(address, { method: 'POST', headers: { accept: 'application/json' }, cache: 'no-store' });
      const { challenge, bits, wait_ms: waitMs } = await asked.json();
      // There is a place already, or another reason to say no: the service tells the visitor which.
      if (!challenge) return form.submit();
      const worker = new Worker(script);
      worker.onerror = () => setTimeout(send, waitMs, challenge);
      worker.onmessage = ({ data: { solution, tried } }) => {
        if (solution) return send(solution);
        // The chance that a browser has found one by now, which reaches no 100 %.
        says.textContent = `${says.dataset.busy} ${Math.floor(100 * (1 - Math.exp(-tried / 2 ** bits)))} %`;
      };
      worker.postMessage({ challenge, bits });
    } catch {
      form.submit();
    }
  }

  self.prove = prove;
  // A page that comes back from the browser's memory may begin again.
  addEventListener('pageshow', event => { if (event.persisted) begun = false; });
  document.querySelectorAll('form[data-join]').forEach(form => form.addEventListener('submit', event => {
    event.preventDefault();
    prove(form);
  }));
})();
