import { useEffect, useRef } from "preact/hooks";
import UPlot from "uplot";
import { texts } from "../texts.ts";
import { clockText } from "./when.tsx";

export interface ChartLine {
  readonly label: string;
  /** One value per time; null if unknown. */
  readonly values: readonly (number | null)[];
}

export interface ChartData {
  readonly label: string;
  readonly lines: readonly ChartLine[];
  readonly format: (value: number) => string;
  /** The values are bytes, so the scale uses powers of two. */
  readonly isBytes?: true;
  /** Minimum upper end of the scale. */
  readonly least: number;
}

interface ChartProps extends ChartData {
  /** Unix seconds, oldest first. */
  readonly times: readonly number[];
  /** Unix seconds of the chart's two ends. */
  readonly from: number;
  readonly to: number;
}

const height = 140;
const powersOfTwo = Array.from({ length: 60 }, (_, exponent) => 2 ** exponent);
const daySecs = 86_400;
const fewSamples = 30;
/** Dash patterns: the lines differ in more than their color. */
const dashes = [[], [6, 4]];

/** Values over time: a drawing, and a sentence for screen readers. */
export function Chart({ label, lines, format, isBytes, least, times, from, to }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const at = box.current;
    if (at === null) return;
    const draw = (): UPlot => {
      const style = getComputedStyle(at);
      const colour = (name: string): string => style.getPropertyValue(name);
      // A canvas does not support light-dark(), so the colors come from the element's computed style.
      const [text, grid, line] = [style.color, style.borderTopColor, style.outlineColor];
      const axis = { stroke: text, font: `12px ${colour("font-family")}`, grid: { stroke: grid, width: 1 } };
      return new UPlot(
        {
          width: Math.max(at.clientWidth, 100),
          height,
          cursor: { show: false },
          legend: { show: false },
          scales: {
            x: { time: true, range: [from, to] },
            y: { range: (_, _min, max) => [0, Math.max(max || 0, least)] },
          },
          axes: [
            {
              ...axis,
              ticks: { stroke: grid },
              // The width of a clock time.
              space: 80,
              values: (_, moments, _axis, _room, apartSecs) => moments.map((at) => clockOf(at, apartSecs)),
            },
            {
              ...axis,
              ticks: { stroke: grid },
              size: 80,
              values: (_, values) => values.map(format),
              ...(isBytes === true && { incrs: powersOfTwo }),
            },
          ],
          series: [
            {},
            ...lines.map((each, index) => ({
              label: each.label,
              stroke: line,
              width: 1.5,
              dash: dashes[index % dashes.length] ?? [],
              ...(index === 0 && { fill: faint(line) }),
              // A line through a single sample would be invisible.
              points: { show: times.length <= fewSamples, size: 4, fill: line },
            })),
          ],
        },
        [[...times], ...lines.map(({ values }) => [...values])],
        at,
      );
    };
    let plot = draw();
    const redraw = (): void => {
      plot.destroy();
      plot = draw();
    };
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", redraw);
    const sized = new ResizeObserver(() => plot.setSize({ width: Math.max(at.clientWidth, 100), height }));
    sized.observe(at);
    return () => {
      dark.removeEventListener("change", redraw);
      sized.disconnect();
      plot.destroy();
    };
  }, [times, lines]);
  const summary = lines.map((line) => summaryOf(line, format)).join("; ");
  return (
    <figure class="chart">
      <figcaption>
        {label} <span class="quiet">{summary}</span>
      </figcaption>
      <div class="plot" ref={box} role="img" aria-label={`${label}: ${summary}`} />
    </figure>
  );
}

/** @param colour as computed: `rgb(11, 92, 173)` */
function faint(colour: string): string {
  return colour.replace(/^rgb\((.*)\)$/, "rgba($1, 0.14)");
}

/** A time label in the reader's local time. */
function clockOf(unixSecs: number, apartSecs: number): string {
  const at = new Date(unixSecs * 1_000);
  return apartSecs < daySecs
    ? clockText(at)
    : at.toLocaleDateString(undefined, { day: "numeric", month: "short" });
}

function summaryOf({ label, values }: ChartLine, format: (value: number) => string): string {
  const known = values.filter((value) => value !== null);
  const last = known.at(-1);
  if (last === undefined) return texts.charts.nothing;
  return texts.charts.summary(
    label,
    format(last),
    format(known.reduce((one, other) => Math.max(one, other))),
  );
}
