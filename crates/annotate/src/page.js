// Draws what the page holds. A picture shows the range [from, to] of its x axis.
const colours = ["#c2410c", "#1d4ed8", "#15803d", "#7e22ce"];

function nice(span) {
  const unit = Math.pow(10, Math.floor(Math.log10(span || 1)));
  return [1, 2, 5, 10].map(n => n * unit).find(n => span / n <= 8) || 10 * unit;
}

function text(n) { return Math.abs(n) >= 1e4 ? n.toExponential(1) : String(+n.toPrecision(4)); }

function figure(title, height, left, range, draw) {
  const box = document.createElement("figure");
  const caption = document.createElement("figcaption");
  caption.textContent = title;
  const canvas = document.createElement("canvas");
  box.append(caption, canvas);
  document.getElementById("pictures").append(box);
  let [from, to] = range, start = null, now = null;
  const bottom = 34;
  function paint() {
    const scale = window.devicePixelRatio || 1, width = canvas.clientWidth;
    canvas.style.height = height + "px";
    canvas.width = width * scale;
    canvas.height = height * scale;
    const g = canvas.getContext("2d");
    g.scale(scale, scale);
    g.font = "12px system-ui, sans-serif";
    const x = v => left + (v - from) / (to - from || 1) * (width - left - 10);
    g.save();
    draw(g, { x, from, to, left, width, top: 8, bottom: height - bottom });
    g.restore();
    g.fillStyle = "#222";
    g.strokeStyle = "#999";
    const step = nice(to - from);
    for (let v = Math.ceil(from / step) * step; v <= to; v += step) {
      g.fillText(text(v), x(v) - 8, height - bottom + 15);
      g.strokeRect(x(v), height - bottom, 0, 4);
    }
    if (start !== null && now !== null) {
      g.fillStyle = "rgba(0, 0, 0, .12)";
      g.fillRect(Math.min(start, now), 0, Math.abs(now - start), height - bottom);
    }
  }
  const value = px => from + (px - left) / (canvas.clientWidth - left - 10) * (to - from);
  canvas.onpointerdown = e => { start = e.offsetX; canvas.setPointerCapture(e.pointerId); };
  canvas.onpointermove = e => { if (start !== null) { now = e.offsetX; paint(); } };
  canvas.onpointerup = e => {
    const ends = [value(start), value(e.offsetX)].sort((a, b) => a - b);
    if (Math.abs(e.offsetX - start) > 5) [from, to] = [Math.max(ends[0], range[0]), Math.min(ends[1], range[1])];
    start = now = null;
    paint();
  };
  canvas.ondblclick = () => { [from, to] = range; paint(); };
  window.addEventListener("resize", paint);
  paint();
  return box;
}

function extent(all) {
  let low = Infinity, high = -Infinity;
  for (const v of all) { if (v < low) low = v; if (v > high) high = v; }
  return low > high ? [0, 1] : [low, low === high ? low + 1 : high];
}

for (const p of pictures) {
  const range = extent(p.lines.flatMap(l => l.points.map(q => q[0])));
  const box = figure(p.title, 260, 60, range, (g, at) => {
    const seen = p.lines.map(l => l.points.filter(q => q[0] >= at.from && q[0] <= at.to));
    const high = Math.max(1e-9, ...seen.map(s => s.reduce((m, q) => Math.max(m, q[1]), 0)));
    const y = v => at.bottom - v / high * (at.bottom - at.top);
    g.fillStyle = "#222";
    const step = nice(high);
    for (let v = 0; v <= high; v += step) g.fillText(text(v), 4, y(v) + 4);
    g.fillText(p.x, at.width / 2 - 40, at.bottom + 31);
    g.fillText(p.y, at.left + 4, at.top + 8);
    seen.forEach((points, i) => {
      g.strokeStyle = colours[i];
      g.lineWidth = 1.5;
      g.beginPath();
      points.forEach((q, n) => n ? g.lineTo(at.x(q[0]), y(q[1])) : g.moveTo(at.x(q[0]), y(q[1])));
      g.stroke();
    });
  });
  const key = document.createElement("div");
  key.className = "key";
  p.lines.forEach((l, i) => {
    const one = document.createElement("span"), mark = document.createElement("i");
    mark.style.background = colours[i];
    one.append(mark, l.name);
    key.append(one);
  });
  box.append(key);
}

const note = timeline.left_out ? " (" + timeline.left_out + " left out)" : "";
figure(timeline.title + note, 60 + 18 * timeline.rows.length, 150,
  extent(timeline.marks.flatMap(m => [m[1], m[2]])), (g, at) => {
    const high = (at.bottom - at.top) / (timeline.rows.length || 1);
    timeline.rows.forEach((name, i) => { g.fillStyle = "#222"; g.fillText(name, 4, at.top + i * high + high * .7); });
    g.fillText(timeline.x, at.width / 2, at.bottom + 31);
    g.beginPath();
    g.rect(at.left, at.top, at.width, at.bottom);
    g.clip();
    for (const [row, from, to] of timeline.marks) {
      if (to < at.from || from > at.to) continue;
      g.fillStyle = timeline.rows[row].startsWith("journal") || timeline.rows[row] === "log" ? colours[0] : colours[1];
      g.fillRect(at.x(from), at.top + row * high + 2, Math.max(1, at.x(to) - at.x(from)), high - 4);
    }
  });
