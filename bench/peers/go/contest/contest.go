// Package contest is the benchmark's critical section, again and again, under the lock of a library. ../../../README.md describes
// the conversation.
package contest

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

var saying sync.Mutex

// Say prints a line for the benchmark.
func Say(format string, values ...any) {
	saying.Lock()
	defer saying.Unlock()
	line := strings.ReplaceAll(fmt.Sprintf(format, values...), "\n", " ")
	if _, err := os.Stdout.WriteString(line + "\n"); err != nil {
		os.Exit(1)
	}
}

// Listen hands on the lines of standard input. When they end, so does the process: whoever started it is gone.
func Listen() <-chan string {
	lines := make(chan string, 1024)
	go func() {
		scanner := bufio.NewScanner(os.Stdin)
		for scanner.Scan() {
			lines <- strings.TrimSpace(scanner.Text())
		}
		os.Exit(0)
	}()
	return lines
}

const benchLease = 30 * time.Second

// job is what the benchmark tells.
type job struct {
	URL     string `json:"url"`
	Name    string `json:"name"`
	Counter string `json:"counter"`
	Passes  string `json:"passes"`
	Tasks   uint64 `json:"tasks"`
	TimeMs  uint64 `json:"time_ms"`
	Most    uint64 `json:"most"`
}

// machineClock is the wall clock as it was at the start, and since then one that nobody sets: all processes of a machine read it
// alike.
type machineClock struct {
	start time.Time
}

func (c machineClock) nowNs() uint64 {
	return uint64(c.start.UnixNano()) + uint64(time.Since(c.start))
}

// Hold is a lock that was acquired, as its library has it.
type Hold any

// Library is a lock of a library.
type Library interface {
	// Acquire waits so long at most, and returns nil if the time is over.
	Acquire(name string, lease, wait time.Duration) (Hold, error)
	// Release returns whether the library says that it still held the lock.
	Release(held Hold) (bool, error)
	// What says which library it is, with versions and settings.
	What() string
}

// contest is one run of the benchmark.
type contest struct {
	job     job
	library Library
	counter *os.File
	clock   machineClock
}

// Run does what the benchmark tells: the job, and when to begin.
func Run(lines <-chan string, open func(urls string) (Library, error)) error {
	run := contest{clock: machineClock{time.Now()}}
	err := json.Unmarshal([]byte(<-lines), &run.job)
	if err != nil {
		return err
	}
	if run.library, err = open(run.job.URL); err != nil {
		return err
	}
	if run.counter, err = os.OpenFile(run.job.Counter, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return err
	}
	if info, err := run.counter.Stat(); err != nil || info.Size() < 16 {
		if _, err := run.counter.WriteAt(make([]byte, 16), 0); err != nil {
			return err
		}
	}
	held, err := run.library.Acquire(fmt.Sprintf("%s-%d", run.job.Name, os.Getpid()), benchLease, 10*time.Second)
	if err == nil && held != nil {
		_, err = run.library.Release(held)
	}
	if err != nil {
		return err
	}
	Say("ready %s", run.library.What())
	<-lines
	return run.measure()
}

func (r *contest) measure() error {
	type outcome struct {
		passes []byte
		err    error
	}
	startNs, outcomes := r.clock.nowNs(), make(chan outcome, r.job.Tasks)
	for range r.job.Tasks {
		go func() {
			passes, err := r.contend((r.job.Most + r.job.Tasks - 1) / r.job.Tasks)
			outcomes <- outcome{passes, err}
		}()
	}
	var passes []byte
	for range r.job.Tasks {
		outcome := <-outcomes
		if outcome.err != nil {
			return outcome.err
		}
		passes = append(passes, outcome.passes...)
	}
	elapsedUs := (r.clock.nowNs() - startNs) / 1_000
	if err := os.WriteFile(r.job.Passes, passes, 0o644); err != nil {
		return err
	}
	Say(`{"elapsed_us":%d,"traffic":{"requests":null,"pushes":0}}`, elapsedUs)
	return nil
}

func (r *contest) contend(most uint64) ([]byte, error) {
	endNs := r.clock.nowNs() + r.job.TimeMs*1_000_000
	var passes []byte
	write := func(words ...uint64) {
		for _, word := range words {
			passes = binary.LittleEndian.AppendUint64(passes, word)
		}
	}
	for range most {
		askedNs := r.clock.nowNs()
		if endNs < askedNs+uint64(time.Millisecond) {
			break
		}
		held, err := r.library.Acquire(r.job.Name, benchLease, min(time.Duration(endNs-askedNs), time.Hour))
		endedNs := r.clock.nowNs()
		if err != nil {
			return nil, err
		}
		if held == nil {
			// Some give up a pause before the end: no use to ask again.
			write(askedNs, endedNs, 0, math.MaxUint64, 0, 0)
			break
		}
		releasedNs, err := r.pass()
		if err != nil {
			return nil, err
		}
		if released, err := r.library.Release(held); err != nil || !released {
			return nil, fmt.Errorf("a release failed: %w", err)
		}
		sinceNs := uint64(math.MaxUint64)
		if askedNs <= releasedNs {
			sinceNs = endedNs - min(releasedNs, endedNs)
		}
		write(askedNs, endedNs, 1, sinceNs, 0, 0)
	}
	return passes, nil
}

// pass counts one up, as somebody would who trusts the lock. It returns when the lock was last given back.
func (r *contest) pass() (uint64, error) {
	var bytes [16]byte
	if _, err := r.counter.ReadAt(bytes[:], 0); err != nil {
		return 0, err
	}
	count, releasedNs := binary.LittleEndian.Uint64(bytes[:]), binary.LittleEndian.Uint64(bytes[8:])
	runtime.Gosched()
	binary.LittleEndian.PutUint64(bytes[:], count+1)
	binary.LittleEndian.PutUint64(bytes[8:], r.clock.nowNs())
	_, err := r.counter.WriteAt(bytes[:], 0)
	return releasedNs, err
}
