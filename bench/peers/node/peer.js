'use strict'

// Locks of npm packages: `peer.js bench|talk LIBRARY …`. ../README.md describes both conversations.

const fs = require('node:fs')
const readline = require('node:readline')
const { LIBRARIES } = require('./libraries')

const BENCH_LEASE_MS = 30_000
const NEVER = (1n << 64n) - 1n
const USAGE = `usage: bench LIBRARY [poll_ms=N] | talk LIBRARY URL[,URL…] [poll_ms=N]; LIBRARY: ${Object.keys(LIBRARIES).join(', ')}`

const say = (line) => fs.writeSync(1, `${line.replaceAll('\n', ' ')}\n`)

const pause = () => new Promise((resolve) => setImmediate(resolve))

// The wall clock as it was at the start, and since then one that nobody sets: all processes of a machine read it alike.
const clock_start_ns = BigInt(Math.round(performance.timeOrigin * 1000)) * 1000n

const now_ns = () => clock_start_ns + BigInt(Math.round(performance.now() * 1e6))

/** Hands on the lines of standard input. When they end, so does the process: whoever started it is gone. */
function listen (on_line) {
  const lines = readline.createInterface({ input: process.stdin })
  lines.on('line', on_line)
  lines.on('close', () => process.exit(0))
}

function words_of (...words) {
  const bytes = Buffer.alloc(8 * words.length)
  words.forEach((word, at) => bytes.writeBigUInt64LE(word, 8 * at))
  return bytes
}

/** The benchmark's critical section, again and again. */
async function bench (open) {
  const arrived = []
  let wake = () => {}
  listen((line) => { arrived.push(line); wake() })
  const next = async () => {
    while (arrived.length === 0) await new Promise((resolve) => { wake = resolve })
    return arrived.shift()
  }
  const job = JSON.parse(await next())
  const library = open(job.url.split(','))
  await library.connect()
  const counter = fs.openSync(job.counter, fs.constants.O_RDWR | fs.constants.O_CREAT, 0o644)
  if (fs.fstatSync(counter).size < 16) fs.writeSync(counter, Buffer.alloc(16), 0, 16, 0)
  const elsewhere = await library.acquire(`${job.name}-${process.pid}`, BENCH_LEASE_MS, 10_000)
  if (elsewhere !== null) await library.release(elsewhere)
  say(`ready ${library.what()}`)
  await next()
  const start_ns = now_ns()
  const tasks = Array.from({ length: job.tasks }, () => contend_once_and_again(job, library, counter))
  const passes = (await Promise.all(tasks)).flat()
  const elapsed_us = Number((now_ns() - start_ns) / 1000n)
  fs.writeFileSync(job.passes, Buffer.concat(passes))
  say(JSON.stringify({ elapsed_us, traffic: { requests: null, pushes: 0 } }))
  process.exit(0)
}

async function contend_once_and_again (job, library, counter) {
  const end_ns = now_ns() + BigInt(job.time_ms) * 1_000_000n
  const most = Math.ceil(job.most / job.tasks)
  const passes = []
  while (passes.length < most) {
    const asked_ns = now_ns()
    const left_ms = Math.min(Number((end_ns - asked_ns) / 1_000_000n), 3_600_000)
    if (left_ms < 1) break
    const held = await library.acquire(job.name, BENCH_LEASE_MS, left_ms)
    const ended_ns = now_ns()
    if (held === null) {
      // Some give up a pause before the end: no use to ask again.
      passes.push(words_of(asked_ns, ended_ns, 0n, NEVER, 0n, 0n))
      break
    }
    const bytes = Buffer.alloc(16)
    fs.readSync(counter, bytes, 0, 16, 0)
    const count = bytes.readBigUInt64LE(0)
    const released_ns = bytes.readBigUInt64LE(8)
    await pause()
    fs.writeSync(counter, words_of(count + 1n, now_ns()), 0, 16, 0)
    if (!await library.release(held)) throw new Error('a release failed')
    let since_ns = NEVER
    if (asked_ns <= released_ns) since_ns = released_ns < ended_ns ? ended_ns - released_ns : 0n
    passes.push(words_of(asked_ns, ended_ns, 1n, since_ns, 0n, 0n))
  }
  return passes
}

/** Does what it is told, line by line; each handle in the order in which it was told. */
async function talk (library, renews) {
  await library.connect()
  const tails = new Map()
  const held = new Map()

  async function acquire (handle, key, lease_ms, wait_ms) {
    if (held.has(handle)) return 'error it holds something'
    if (lease_ms <= 0 && !renews) return 'error a lease is wanted'
    const got = await library.acquire(key, lease_ms, wait_ms)
    if (got === null) return 'refused'
    held.set(handle, got)
    return 'held'
  }

  const COMMANDS = {
    try: (handle, key, lease_ms) => acquire(handle, key, Number(lease_ms), 0),
    lock: (handle, key, lease_ms, wait_ms) => acquire(handle, key, Number(lease_ms), Number(wait_ms)),
    again: () => 'unsupported',
    fence: () => 'unsupported',
    holds: () => 'unsupported',
    unlock: async (handle) => {
      if (!held.has(handle)) return 'error it holds nothing'
      const got = held.get(handle)
      held.delete(handle)
      return await library.release(got) ? 'released' : 'lost'
    },
    contend: async (handle, key, file, tasks, rounds, lease_ms) => {
      const names = Array.from({ length: Number(tasks) }, (_, at) => `${handle}-${at}`)
      const counts = names.map((name) => count_up(library, key, file, name, Number(rounds), Number(lease_ms)))
      return `done ${(await Promise.all(counts)).reduce((sum, count) => sum + count, 0)}`
    }
  }

  async function answer (command, handle, words) {
    const known = COMMANDS[command]
    if (known === undefined || known.length > 0 && known.length !== words.length + 1) {
      return `error what is ${command} with ${words.length} more words?`
    }
    return known(handle, ...words)
  }

  listen((line) => {
    const [command, handle, ...words] = line.trim().split(/\s+/)
    if (handle === undefined) return say(`${command || '-'} error a command and a handle are wanted`)
    const before = tails.get(handle) ?? Promise.resolve()
    const done = before.then(() => answer(command, handle, words))
    tails.set(handle, done.then(
      (text) => say(`${handle} ${text}`),
      (error) => say(`${handle} error ${error.name}: ${error.message}`)
    ))
  })
  say('ready')
}

async function count_up (library, key, file, name, rounds, lease_ms) {
  for (let round = 0; round < rounds; round += 1) {
    const held = await library.acquire(key, lease_ms, Infinity)
    const number = Number(fs.readFileSync(file, 'utf8'))
    await pause()
    // Renamed, so that whoever reads it without holding the lock sees a number, too.
    const aside = `${file}.${process.pid}.${name}`
    fs.writeFileSync(aside, String(number + 1))
    fs.renameSync(aside, file)
    if (!await library.release(held)) throw new Error('a release failed')
  }
  return rounds
}

function main (args) {
  const is_setting = (word) => /^poll_ms=\d+$/.test(word)
  const settings = Object.fromEntries(args.filter(is_setting).map((word) => word.split('=')))
  const [mode, name, urls, ...more] = args.filter((word) => !is_setting(word))
  const known = LIBRARIES[name]
  const asked = known !== undefined && more.length === 0
  const open = (urls, poll_ms) => {
    if (!known.quorum && urls.length !== 1) throw new Error(`${name} wants one Redis`)
    return new known.Library(urls, { poll_ms: Number(settings.poll_ms ?? poll_ms) })
  }
  if (asked && mode === 'bench' && urls === undefined) {
    return bench((urls) => open(urls, known.bench_poll_ms))
  }
  if (asked && mode === 'talk' && urls !== undefined) {
    return talk(open(urls.split(','), known.talk_poll_ms), known.renews)
  }
  throw new Error(USAGE)
}

Promise.resolve().then(() => main(process.argv.slice(2))).catch((error) => {
  console.error(error.message)
  process.exit(1)
})
