// Command peers is redsync in two conversations: `peers bench|talk redsync …`. ../README.md describes both.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"firstcome/peers/contest"
)

const usage = "usage: bench redsync [poll_ms=N] [fail_fast=0|1] | talk redsync URL[,URL…] [poll_ms=N] [fail_fast=0|1]"

// Delays between tries, each give or take two thirds, as its own: 50 ms to 250 ms. In a conversation nobody should wait long.
const (
	benchPollMs = 150
	talkPollMs  = 20
)

var say = contest.Say

// contestant is the library as the benchmark knows it.
type contestant struct{ *library }

func (c contestant) Acquire(name string, lease, wait time.Duration) (contest.Hold, error) {
	held, err := c.acquire(name, lease, wait)
	if held == nil {
		return nil, err
	}
	return held, err
}

func (c contestant) Release(held contest.Hold) (bool, error) { return c.release(held.(*hold)) }

func (c contestant) What() string { return c.what() }

func run(arguments []string) error {
	settings := map[string]int{"poll_ms": 0, "fail_fast": 1}
	var words []string
	for _, argument := range arguments {
		name, value, isSetting := strings.Cut(argument, "=")
		if !isSetting || strings.Contains(name, "://") {
			words = append(words, argument)
			continue
		}
		number, err := strconv.Atoi(value)
		if _, known := settings[name]; !known || err != nil || number < 0 {
			return fmt.Errorf("%s: %s", argument, usage)
		}
		settings[name] = number
	}
	open := func(urls string, pollMs int) (*library, error) {
		if 0 < settings["poll_ms"] {
			pollMs = settings["poll_ms"]
		}
		return connect(context.Background(), strings.Split(urls, ","), pollMs, settings["fail_fast"] == 1)
	}
	switch {
	case len(words) == 2 && words[0] == "bench" && words[1] == "redsync":
		return contest.Run(contest.Listen(), func(urls string) (contest.Library, error) {
			library, err := open(urls, benchPollMs)
			return contestant{library}, err
		})
	case len(words) == 3 && words[0] == "talk" && words[1] == "redsync":
		library, err := open(words[2], talkPollMs)
		if err != nil {
			return err
		}
		return talk(contest.Listen(), library)
	}
	return fmt.Errorf("%s", usage)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// forever is a wait without end.
const forever = time.Duration(-1)

// talker knows one goroutine for each handle.
type talker struct {
	library *library
	handles map[string]chan []string
}

// talk does what it is told, line by line; each handle in the order in which it was told.
func talk(lines <-chan string, library *library) error {
	talker := &talker{library: library, handles: map[string]chan []string{}}
	say("ready")
	for line := range lines {
		words := strings.Fields(line)
		if len(words) < 2 {
			say("%s error a command and a handle are wanted", strings.Join(append(words, "-")[:1], ""))
			continue
		}
		commands, known := talker.handles[words[1]]
		if !known {
			commands = make(chan []string, 1024)
			talker.handles[words[1]] = commands
			go talker.serve(words[1], commands)
		}
		commands <- words
	}
	return nil
}

func (t *talker) serve(handle string, commands <-chan []string) {
	var held *hold
	for words := range commands {
		answer, err := t.answer(handle, &held, words)
		if err != nil {
			answer = "error " + err.Error()
		}
		say("%s %s", handle, answer)
	}
}

func (t *talker) answer(handle string, held **hold, words []string) (string, error) {
	command, more := words[0], words[2:]
	numbers := func(texts ...string) ([]int, error) {
		var numbers []int
		for _, text := range texts {
			number, err := strconv.Atoi(text)
			if err != nil {
				return nil, err
			}
			numbers = append(numbers, number)
		}
		return numbers, nil
	}
	switch {
	case command == "try" && len(more) == 2, command == "lock" && len(more) == 3:
		numbers, err := numbers(more[1:]...)
		if err != nil {
			return "", err
		}
		wait := time.Duration(0)
		if command == "lock" {
			wait = milliseconds(numbers[1])
		}
		return t.acquire(held, more[0], milliseconds(numbers[0]), wait)
	case command == "unlock" && len(more) == 0:
		if *held == nil {
			return "", fmt.Errorf("it holds nothing")
		}
		released, err := t.library.release(*held)
		*held = nil
		if err != nil {
			return "", err
		}
		if !released {
			return "lost", nil
		}
		return "released", nil
	case (command == "again" || command == "fence" || command == "holds") && len(more) == 0:
		return "unsupported", nil
	case command == "contend" && len(more) == 5:
		numbers, err := numbers(more[2:]...)
		if err != nil {
			return "", err
		}
		return t.contend(handle, more[0], more[1], numbers[0], numbers[1], milliseconds(numbers[2]))
	}
	return "", fmt.Errorf("what is %s with %d more words?", command, len(more))
}

func (t *talker) acquire(held **hold, key string, lease, wait time.Duration) (string, error) {
	if *held != nil {
		return "", fmt.Errorf("it holds something")
	}
	if lease <= 0 {
		return "", fmt.Errorf("a lease is wanted")
	}
	got, err := t.library.acquire(key, lease, wait)
	if err != nil {
		return "", err
	}
	if got == nil {
		return "refused", nil
	}
	*held = got
	return "held", nil
}

func (t *talker) contend(handle, key, file string, tasks, rounds int, lease time.Duration) (string, error) {
	outcomes := make(chan error, tasks)
	for task := range tasks {
		aside := fmt.Sprintf("%s.%d.%s-%d", file, os.Getpid(), handle, task)
		go func() {
			for range rounds {
				if err := t.countUp(key, file, aside, lease); err != nil {
					outcomes <- err
					return
				}
			}
			outcomes <- nil
		}()
	}
	for range tasks {
		if err := <-outcomes; err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("done %d", tasks*rounds), nil
}

func milliseconds(count int) time.Duration {
	return time.Duration(count) * time.Millisecond
}
