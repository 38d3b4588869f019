import type { ViewName } from "../route.ts";

/** SVG paths in a square of 24 units. */
const strokes: Readonly<Partial<Record<ViewName, string>>> = {
  overview: "M4 4h7v7H4zM13 4h7v4h-7zM13 11h7v9h-7zM4 14h7v6H4z",
  apps: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9",
  backups: "M4 12a8 8 0 1 0 3-6.2L4 8.5M4 4v4.5h4.5M12 8v4.5l3 2",
  schedules: "M4 6h16v14H4zM4 10.5h16M8.5 3.5V8M15.5 3.5V8",
  files: "M3.5 6h6l2 2.5h9V19h-17z",
  inventory: "M4 4h16v6H4zM4 14h16v6H4zM7.5 7h.01M7.5 17h.01",
  host: "M6.5 6.5h11v11h-11zM10 3v3.5M14 3v3.5M10 17.5V21M14 17.5V21M3 10h3.5M3 14h3.5M17.5 10H21M17.5 14H21",
  sources: "M12 3v11M7.5 9.5L12 14l4.5-4.5M4 15v5h16v-5",
  access: "M12 3l8 3v6c0 4.5-3.2 7.7-8 9-4.8-1.3-8-4.5-8-9V6zM9 12l2.2 2.2L15.5 10",
};

/** A decorative icon next to the name of a view. */
export function Icon({ of }: { of: ViewName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={strokes[of]} />
    </svg>
  );
}
