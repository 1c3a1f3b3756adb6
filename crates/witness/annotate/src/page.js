// Draws what the page holds. A view is what pictures with the same x axis show of it: zooming in one zooms all of them.
// Colours are those of the style sheet, which knows whether the reader wants a dark page.
let colours, ink, faint, edge, shade, green;
function takeColours() {
  const style = getComputedStyle(document.documentElement), of = name => style.getPropertyValue(name).trim();
  colours = [of("--journal"), of("--fixed")];
  [ink, faint, edge, shade, green] = ["--ink", "--faint", "--edge", "--shade", "--flush"].map(of);
}
takeColours();
const small = matchMedia("(max-width: 600px)");
const font = () => (small.matches ? "10px" : "12px") + " system-ui, sans-serif";
const above = 24, bottom = 40, right = 14;
// The same for all pictures, so that moments are below one another.
let left = small.matches ? 104 : 160;
const views = new Map();

function nice(span) {
  const unit = Math.pow(10, Math.floor(Math.log10(span || 1)) - 1);
  return [1, 2, 5, 10, 20].map(n => n * unit).find(n => span / n <= 8) || 20 * unit;
}

// Ticks from one number to another, each with as many digits as tell it from the next; there are no halves of writes and requests.
function ticks(from, to, axis) {
  const whole = axis === "writes" || axis === "requests";
  const step = Math.max(nice(to - from), whole ? 1 : 0), digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const all = [];
  // Adding 0 makes 0 of -0.
  for (let i = Math.ceil(from / step - 1e-9) + 0; i * step <= to + step * 1e-9; i++) {
    const v = i * step;
    const name = v >= 1e6 ? v / 1e6 + " M" : v.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    all.push([v, name]);
  }
  return all;
}

function extent(all) {
  let low = Infinity, high = -Infinity;
  for (const v of all) { if (v < low) low = v; if (v > high) high = v; }
  return low > high ? [0, 1] : [low, low === high ? low + 1 : high];
}

function view(name, range) {
  const all = views.get(name) || { whole: range, figures: [] };
  all.whole = [Math.min(all.whole[0], range[0]), Math.max(all.whole[1], range[1])];
  all.now = all.whole;
  views.set(name, all);
  return all;
}

function element(kind, text, parent) {
  const one = document.createElement(kind);
  one.textContent = text;
  parent.append(one);
  return one;
}

// A figure. `draw` paints it; `tell` gives the text for a point: the value on the axis, the height in pixels, and how far one may be off.
function figure(title, axis, height, shown, draw, tell) {
  const box = element("figure", "", document.getElementById("pictures"));
  element("figcaption", title, box);
  const canvas = element("canvas", "", box);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", title);
  const tip = element("div", "", box);
  tip.className = "tip";
  tip.hidden = true;
  let start = null, now = null;
  const width = () => Math.max(canvas.clientWidth, left + right + 10);
  function paint() {
    const scale = window.devicePixelRatio || 1, [from, to] = shown.now;
    canvas.style.height = height + "px";
    canvas.width = width() * scale;
    canvas.height = height * scale;
    const g = canvas.getContext("2d"), low = height - bottom;
    g.scale(scale, scale);
    g.font = font();
    const x = v => left + (v - from) / (to - from || 1) * (width() - left - right);
    g.textAlign = "center";
    for (const [v, name] of ticks(from, to, axis)) {
      g.fillStyle = faint;
      g.fillRect(x(v) - .5, above, 1, low - above);
      g.fillStyle = ink;
      g.fillText(name, x(v), low + 16);
    }
    g.fillText(axis, left + (width() - left - right) / 2, low + 34);
    draw(g, { x, from, to, left, right: width() - right, top: above, bottom: low });
    g.strokeStyle = edge;
    g.lineWidth = 1;
    g.strokeRect(left - .5, above - .5, width() - left - right + 1, low - above + 1);
    if (start !== null && now !== null) {
      g.fillStyle = shade;
      g.fillRect(Math.min(start, now), above, Math.abs(now - start), low - above);
    }
  }
  const inside = e => Math.min(Math.max(e.offsetX, left), width() - right);
  const value = px => shown.now[0] + (px - left) / (width() - left - right) * (shown.now[1] - shown.now[0]);
  const show = range => { shown.now = range; shown.figures.forEach(paint => paint()); };
  canvas.onpointerdown = e => { start = inside(e); now = null; canvas.setPointerCapture(e.pointerId); };
  function hover(e) {
    const [from, to] = shown.now, off = (to - from) / (width() - left - right) * 4;
    const text = e.offsetX < left || e.offsetX > width() - right ? "" : tell(value(e.offsetX), e.offsetY, off);
    tip.hidden = !text;
    tip.textContent = text;
    const beside = e.offsetX > width() / 2 ? e.offsetX - tip.offsetWidth - 10 : e.offsetX + 14;
    tip.style.left = Math.max(0, beside) + "px";
    tip.style.top = canvas.offsetTop + e.offsetY + 14 + "px";
  }
  canvas.onpointermove = e => { if (start !== null) { now = inside(e); paint(); } hover(e); };
  canvas.onpointerleave = () => { tip.hidden = true; };
  canvas.onpointercancel = () => { start = now = null; paint(); };
  canvas.onpointerup = e => {
    if (start === null) return;
    const ends = [start, inside(e)].sort((a, b) => a - b), range = ends.map(value);
    start = now = null;
    show(ends[1] - ends[0] > 5 ? range : shown.now);
  };
  canvas.ondblclick = () => show(shown.whole);
  window.addEventListener("resize", paint);
  shown.figures.push(paint);
  return box;
}

const number = v => v.toLocaleString("en", { maximumSignificantDigits: 6 });

// The first point at or behind x.
function behind(points, x) {
  let low = 0, high = points.length;
  while (low < high) { const mid = (low + high) >> 1; if (points[mid][0] < x) low = mid + 1; else high = mid; }
  return low;
}

for (const p of pictures) {
  const shown = view(p.x, extent(p.lines.flatMap(l => l.points.map(q => q[0]))));
  const box = figure(p.title, p.x, 270, shown, (g, at) => {
    // With one point to each side, so that lines go on at the edges.
    const seen = p.lines.map(l => l.points.slice(Math.max(0, behind(l.points, at.from) - 1), behind(l.points, at.to) + 1));
    const high = seen.flat().reduce((m, q) => Math.max(m, q[1]), 0) * 1.05 || 1;
    const y = v => at.bottom - v / high * (at.bottom - at.top);
    g.textAlign = "right";
    for (const [v, name] of ticks(0, high, p.y)) {
      g.fillStyle = faint;
      g.fillRect(at.left, y(v) - .5, at.right - at.left, 1);
      g.fillStyle = ink;
      g.fillText(name, at.left - 7, y(v) + 4);
    }
    g.fillText(p.y, at.left - 7, 14);
    g.save();
    g.beginPath();
    g.rect(at.left, at.top, at.right - at.left, at.bottom - at.top);
    g.clip();
    seen.forEach((points, i) => {
      g.strokeStyle = colours[i];
      g.lineWidth = 1.5;
      g.beginPath();
      let last = 0;
      points.forEach(([px, py], n) => {
        if (n === 0) g.moveTo(at.x(px), y(py));
        else { if (p.steps) g.lineTo(at.x(px), y(last)); g.lineTo(at.x(px), y(py)); }
        last = py;
      });
      g.stroke();
    });
    g.restore();
  }, at => {
    const lines = p.lines.map(l => {
      const n = Math.max(0, behind(l.points, at + 1e-12) - 1), q = l.points[n];
      return q ? l.name + ": " + number(q[1]) + " " + p.y : "";
    });
    return [number(at) + " " + p.x, ...lines].join("\n");
  });
  const key = element("div", "", box);
  key.className = "key";
  key.style.marginLeft = left + "px";
  p.lines.forEach((l, i) => {
    const one = element("span", "", key);
    element("i", "", one).style.background = i ? "var(--fixed)" : "var(--journal)";
    one.append(l.name);
  });
}

for (const timeline of timelines) {
  const note = timeline.left_out ? " (" + timeline.left_out.toLocaleString("en") + " of them left out)" : "";
  const shown = view(timeline.x, extent(timeline.marks.flatMap(m => [m[1], m[2]])));
  figure(timeline.title + note, timeline.x, above + bottom + 20 * (timeline.rows.length || 1), shown, (g, at) => {
    const high = (at.bottom - at.top) / (timeline.rows.length || 1);
    g.textAlign = "right";
    timeline.rows.forEach((name, i) => {
      g.fillStyle = ink;
      g.fillText(name, at.left - 8, at.top + i * high + high * .7);
      g.fillStyle = faint;
      if (i) g.fillRect(at.left, at.top + i * high - .5, at.right - at.left, 1);
    });
    g.save();
    g.beginPath();
    g.rect(at.left, at.top, at.right - at.left, at.bottom - at.top);
    g.clip();
    g.fillStyle = green;
    g.globalAlpha = .45;
    for (const moment of timeline.flushes) if (moment >= at.from && moment <= at.to) g.fillRect(at.x(moment) - .5, at.top, 1, at.bottom - at.top);
    g.globalAlpha = 1;
    for (const [row, from, to, , journal] of timeline.marks) {
      if (to < at.from || from > at.to) continue;
      g.fillStyle = colours[journal ? 0 : 1];
      g.fillRect(at.x(from), at.top + row * high + 3, Math.max(1.5, at.x(to) - at.x(from)), high - 6);
    }
    g.restore();
  }, (at, y, off) => {
    const row = Math.floor((y - above) / 20), near = timeline.marks.filter(m => m[0] === row && m[1] - off <= at && at <= m[2] + off);
    const flush = timeline.flushes.some(moment => Math.abs(moment - at) <= off) ? "a flush" : "";
    const lines = near.slice(0, 4).map(m => timeline.rows[row] + ", " + timeline.noun + " " + m[3] + ": " + number(m[1]) + " to " + number(m[2]) + " " + timeline.x);
    if (near.length > 4) lines.push("and " + (near.length - 4) + " more");
    return [...lines, flush].filter(line => line).join("\n");
  });
}
const flushKey = element("div", "", document.getElementById("pictures"));
flushKey.className = "key";
flushKey.style.marginLeft = left + "px";
[["--journal", "journal"], ["--fixed", "fixed locations"], ["--flush", "flushes"]].forEach(([colour, name]) => {
  const one = element("span", "", flushKey);
  element("i", "", one).style.background = "var(" + colour + ")";
  one.append(name);
});
const repaint = () => views.forEach(shown => shown.figures.forEach(paint => paint()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { takeColours(); repaint(); });
small.addEventListener("change", () => { left = small.matches ? 104 : 160; repaint(); });
views.forEach(shown => shown.figures.forEach(paint => paint()));
