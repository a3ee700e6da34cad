package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

// library is redsync over one pool of go-redis for each Redis.
type library struct {
	redsync  *redsync.Redsync
	nodes    int
	pollMs   int
	failFast bool
}

// hold is a lock that was acquired.
type hold struct {
	mutex *redsync.Mutex
}

// connect reaches each Redis once.
func connect(ctx context.Context, urls []string, pollMs int, failFast bool) (*library, error) {
	var pools []redis.Pool
	for _, url := range urls {
		options, err := goredislib.ParseURL(url)
		if err != nil {
			return nil, err
		}
		client := goredislib.NewClient(options)
		if err := client.Ping(ctx).Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", url, err)
		}
		pools = append(pools, goredis.NewPool(client))
	}
	return &library{redsync.New(pools...), len(urls), pollMs, failFast}, nil
}

func (l *library) what() string {
	versions := map[string]string{}
	if info, known := debug.ReadBuildInfo(); known {
		for _, module := range info.Deps {
			versions[module.Path] = module.Version
		}
	}
	return fmt.Sprintf("redsync %s on go-redis %s, %d Redis, retry delay %d ms to %d ms, fail-fast %t",
		versions["github.com/go-redsync/redsync/v4"], versions["github.com/redis/go-redis/v9"], l.nodes,
		l.pollMs/3, l.pollMs*5/3, l.failFast)
}

// delay is a third of the usual one to five thirds, as its own, 50 ms to 250 ms, is around 150 ms.
func (l *library) delay() time.Duration {
	return milliseconds(l.pollMs/3) + time.Duration(rand.Int64N(int64(l.pollMs)*4/3*int64(time.Millisecond)+1))
}

// acquire waits so long, not at all if that is 0, and without end if it is forever. It returns nil if the time is over.
func (l *library) acquire(key string, lease, wait time.Duration) (*hold, error) {
	// A context that ends within a try would take the undoing of the try with it: so it is ended between two.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	start := time.Now()
	delay := func(int) time.Duration {
		delay := l.delay()
		if wait != forever && wait <= time.Since(start)+delay {
			cancel()
		}
		return delay
	}
	mutex := l.redsync.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(math.MaxInt),
		redsync.WithRetryDelayFunc(delay), redsync.WithFailFast(l.failFast))
	var err error
	if wait == 0 {
		err = mutex.TryLock()
	} else {
		err = mutex.LockContext(ctx)
	}
	if err == nil {
		return &hold{mutex}, nil
	}
	if isOutage(err) {
		return nil, err
	}
	return nil, nil
}

// isOutage returns whether a Redis did not answer; all else that an error can say is that somebody else has the lock.
func isOutage(err error) bool {
	outage := new(redsync.RedisError)
	return errors.As(err, &outage)
}

// release returns whether the library says that it still held the lock.
func (l *library) release(held *hold) (bool, error) {
	released, err := held.mutex.Unlock()
	if !released && isOutage(err) {
		return false, err
	}
	// If some had nothing to release: a majority had.
	return released, nil
}

// countUp counts a number in a file one up under the lock.
func (t *talker) countUp(key, file, aside string, lease time.Duration) error {
	held, err := t.library.acquire(key, lease, forever)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	runtime.Gosched()
	// Renamed, so that whoever reads it without holding the lock sees a number, too.
	if err := os.WriteFile(aside, []byte(strconv.Itoa(number+1)), 0o644); err != nil {
		return err
	}
	if err := os.Rename(aside, file); err != nil {
		return err
	}
	released, err := t.library.release(held)
	if err == nil && !released {
		err = fmt.Errorf("a release failed")
	}
	return err
}
