'use strict'

// The locks of redlock and of redis-semaphore, each behind the same calls.
//
// `acquire` waits so many milliseconds, not at all if that is 0, and without end if it is Infinity; it returns what is held, or
// null. `release` returns whether the library says that it still held the lock.

const Redis = require('ioredis')
const Redlock = require('redlock')
const { Mutex } = require('redis-semaphore')

const version = (name) => require(`${name}/package.json`).version

/** redlock on as many Redis as there are addresses. It polls: a delay, give or take half of it. */
class Quorum {
  constructor (urls, settings) {
    this.clients = urls.map((url) => new Redis(url))
    this.delay_ms = settings.poll_ms
    // Its own are 200 ms ± 100 ms.
    this.options = { retryDelay: this.delay_ms, retryJitter: this.delay_ms / 2 }
    this.once = new Redlock(this.clients, { ...this.options, retryCount: 0 })
    this.often = new Redlock(this.clients, { ...this.options, retryCount: -1 })
  }

  what () {
    const nodes = this.clients.length
    return `redlock ${version('redlock')} on ioredis ${version('ioredis')}, ${nodes} Redis, ` +
      `retryDelay ${this.delay_ms} ± ${this.delay_ms / 2} ms`
  }

  connect () {
    return Promise.all(this.clients.map((client) => client.ping()))
  }

  async acquire (key, lease_ms, wait_ms) {
    if (wait_ms === Infinity) return this.often.lock(key, lease_ms)
    const end = performance.now() + wait_ms
    for (;;) {
      // It has no deadline of its own; this is what it does between two attempts.
      try {
        return await this.once.lock(key, lease_ms)
      } catch (error) {
        if (error.name !== 'LockError') throw error
      }
      const pause_ms = this.delay_ms * (0.5 + Math.random())
      if (end <= performance.now() + pause_ms) return null
      await new Promise((resolve) => setTimeout(resolve, pause_ms))
    }
  }

  async release (held) {
    try {
      await held.unlock()
      return true
    } catch (error) {
      if (error.name !== 'LockError') throw error
      return false
    }
  }
}

/** The Mutex of redis-semaphore on one Redis. It polls, 10 ms apart unless told otherwise. */
class Semaphore {
  constructor (urls, settings) {
    this.client = new Redis(urls[0])
    this.retryInterval = settings.poll_ms
  }

  what () {
    return `redis-semaphore ${version('redis-semaphore')} on ioredis ${version('ioredis')}, ` +
      `retryInterval ${this.retryInterval} ms`
  }

  connect () {
    return this.client.ping()
  }

  async acquire (key, lease_ms, wait_ms) {
    const { retryInterval } = this
    // Without a lease it takes its own, 10 s, and refreshes it.
    const lease = lease_ms === 0 ? {} : { lockTimeout: lease_ms, refreshInterval: 0 }
    const wait = wait_ms === 0 ? { acquireAttemptsLimit: 1 } : { acquireTimeout: wait_ms }
    const mutex = new Mutex(this.client, key, { retryInterval, ...lease, ...wait, onLockLost: () => {} })
    return await mutex.tryAcquire() ? mutex : null
  }

  /** It returns nothing: that a lock is lost, it knows only if it tried to refresh it meanwhile. */
  async release (held) {
    const known = held.isAcquired
    await held.release()
    return known
  }
}

// Delays of the benchmark: see README.md. In a conversation nobody should wait long.
const LIBRARIES = {
  redlock: { Library: Quorum, quorum: true, renews: false, bench_poll_ms: 100, talk_poll_ms: 20 },
  'redis-semaphore': { Library: Semaphore, quorum: false, renews: true, bench_poll_ms: 100, talk_poll_ms: 10 }
}

module.exports = { LIBRARIES }
