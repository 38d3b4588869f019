import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { NodeView } from "../node-view.ts";
import { plainText } from "../plain-text.ts";
import { entryOf, pathTo, route, viewNames, type ViewName } from "../route.ts";
import { signOut } from "../session.ts";
import { texts } from "../texts.ts";

/** The frame of every view: navigation, user, and connection state. */
export function Frame({ node, children }: { node: NodeView; children: ComponentChildren }) {
  const status = node.status.value;
  const connection = node.connection.value;
  const skip = (event: Event): void => {
    event.preventDefault();
    document.querySelector<HTMLElement>("h1")?.focus();
  };
  return (
    <div class="frame">
      <a class="skip" href="#content" onClick={skip}>
        {texts.skip}
      </a>
      <header class="bar">
        <div class="held">
          <span class="brand">svc</span>
          <Navigation />
          <div class="session">
            <span class="who">
              {status !== undefined &&
                texts.you(
                  plainText(status.caller?.user || String(status.caller?.uid ?? "")),
                  plainText(status.hostname),
                )}
            </span>
            <span class={`connection ${connection}`} role="status">
              {texts.connection[connection]}
            </span>
            <a href="docs/guide">{texts.guide}</a>
            <button type="button" onClick={() => void signOut()}>
              {texts.signOut}
            </button>
          </div>
        </div>
      </header>
      <main id="content" class={connection === "lost" ? "old" : ""}>
        {children}
      </main>
    </div>
  );
}

/** Scrolls the current entry into view if not all entries fit. */
function Navigation() {
  const entry = entryOf(route.value.view);
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    const at = nav.current?.querySelector<HTMLElement>("[aria-current]");
    if (nav.current !== null && at) nav.current.scrollLeft = at.offsetLeft - nav.current.offsetLeft - 48;
  }, [entry]);
  return (
    <nav ref={nav} aria-label={texts.mainNavigation}>
      {viewNames
        .filter((name) => entryOf(name) === name)
        .map((name) => (
          <a key={name} href={pathTo(name)} aria-current={entry === name ? "page" : undefined}>
            <Icon of={name} />
            {texts[name].title}
          </a>
        ))}
    </nav>
  );
}

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
function Icon({ of }: { of: ViewName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={strokes[of]} />
    </svg>
  );
}
