"use strict";
// Draws the charts of a page while it is seen. Their figures come by a stream, and by polls while there is no stream.
(() => {
  const root = document.querySelector("[data-feed]");
  if (!root || !window.uPlot) return;
  const WINDOW_MS = 600000, PERIOD_MS = 1000, WAIT_MS_MAX = 15000, QUIET_MS = 5000, POLLS_BEFORE_STREAM = 30;
  const live = document.getElementById("live");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const columns = { at_ms: [] };
  let wait_ms = PERIOD_MS, stream = null, quiet = 0, due = 0;
  // The first figures come by a poll, which also tells that the session is over.
  let polls_left = 1;

  const shown = (value, unit) => {
    if (value === null || value === undefined) return "–";
    const digits = unit === "" || 10 <= value ? 0 : unit === "ms" && value < 1 ? 2 : 1;
    return value.toFixed(digits).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  };

  const charts = [...root.querySelectorAll("[data-chart]")].map((figure) => {
    const series = figure.dataset.chart.split(",").map((pair) => pair.split(":"));
    const legend = figure.querySelector(".legend");
    const values = series.map(([, label]) => {
      const item = document.createElement("span");
      item.textContent = label;
      legend.append(item);
      return item;
    });
    return { figure, plot: figure.querySelector(".plot"), series, values, unit: figure.dataset.unit, drawn: null };
  });

  const data = (chart) => [columns.at_ms.map((at) => at / 1000), ...chart.series.map(([name]) => columns[name] || [])];

  const draw = (chart) => {
    if (chart.drawn) chart.drawn.destroy();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const lines = ["--one", "--two"].map((name) => ({ stroke: colour(name), width: 2, points: { show: false }, spanGaps: false }));
    if (chart.series.length === 1) lines[0].fill = colour("--one") + "22";
    chart.drawn = new uPlot({
      width: chart.plot.clientWidth, height: chart.plot.clientHeight,
      legend: { show: false }, cursor: { y: false, drag: { x: false, y: false } },
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.15 : 1] } },
      axes: [{ ...axis, space: 84, size: 26, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toISOString().slice(11, 19)) }, { ...axis, size: 52, space: 34, values: (_, ticks) => ticks.map((tick) => tick >= 10000 ? Math.round(tick / 1000) + "k" : String(+tick.toFixed(2))) }],
      series: [{}, ...lines.slice(0, chart.series.length)],
      hooks: { setLegend: [(plot) => name(chart, plot.cursor.idx)] },
    }, data(chart), chart.plot);
  };

  const name = (chart, index) => {
    const at = index ?? columns.at_ms.length - 1;
    chart.series.forEach(([column, label], place) => {
      const value = (columns[column] || [])[at];
      chart.values[place].textContent = label + " " + shown(value, chart.unit) + (chart.unit && value !== null && value !== undefined ? (chart.unit === "ms" ? " ms" : chart.unit) : "");
    });
  };

  const update = () => {
    for (const chart of charts) {
      if (!chart.drawn) draw(chart);
      chart.drawn.setData(data(chart));
      name(chart, chart.drawn.cursor.idx);
    }
    for (const figure of document.querySelectorAll("[data-now]")) {
      const values = columns[figure.dataset.now] || [];
      const unit = figure.parentElement.querySelector("i");
      if (values.length) figure.textContent = shown(values[values.length - 1], unit ? unit.textContent : "");
    }
  };

  const last = () => columns.at_ms[columns.at_ms.length - 1] || 0;

  // A stream may tell a sample twice.
  const take = (news) => {
    const known = last();
    const first = news.at_ms.findIndex((at) => known < at);
    if (first < 0) return;
    for (const [column, values] of Object.entries(news)) (columns[column] ||= []).push(...values.slice(first));
    const oldest = last() - WINDOW_MS;
    const gone = columns.at_ms.findIndex((at) => oldest <= at);
    if (0 < gone) for (const values of Object.values(columns)) values.splice(0, gone);
  };

  const say = (words) => { if (live && live.textContent !== words) live.textContent = words; };

  const show = (news) => {
    take(news);
    update();
    wait_ms = PERIOD_MS;
    say("");
  };

  const address = (feed) => feed + (feed.includes("?") ? "&" : "?") + "after=" + last();

  const poll = async () => {
    try {
      const answer = await fetch(address(root.dataset.feed), { headers: { accept: "application/json" }, cache: "no-store" });
      if (answer.status === 401) { location.reload(); return; }
      if (!answer.ok) throw new Error(String(answer.status));
      show(await answer.json());
    } catch {
      wait_ms = Math.min(wait_ms * 2, WAIT_MS_MAX);
      say("The service does not answer. The figures stand still.");
    }
    polls_left = Math.max(polls_left - 1, 0);
    later(wait_ms);
  };

  const hang_up = () => {
    clearTimeout(quiet);
    if (stream) stream.close();
    stream = null;
  };

  // A stream that ended, failed or says nothing: polls go on, and after some of them another stream is tried.
  const fall_back = () => {
    hang_up();
    polls_left = POLLS_BEFORE_STREAM;
    later(0);
  };

  const listen = () => {
    const expect = () => {
      clearTimeout(quiet);
      quiet = setTimeout(fall_back, QUIET_MS);
    };
    stream = new EventSource(address(root.dataset.feed.replace("/feed", "/stream")));
    stream.addEventListener("samples", (event) => { expect(); show(JSON.parse(event.data)); });
    stream.addEventListener("end", fall_back);
    stream.addEventListener("error", fall_back);
    expect();
  };

  const run = () => {
    if (document.hidden || stream) return;
    if (polls_left === 0 && window.EventSource) listen(); else poll();
  };

  const later = (ms) => { clearTimeout(due); due = setTimeout(run, ms); };

  const redraw = () => charts.forEach((chart) => { if (chart.drawn) draw(chart); });
  let resized = 0;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(redraw, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) hang_up(); else later(0);
  });
  run();
})();
