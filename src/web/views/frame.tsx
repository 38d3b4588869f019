import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { NodeView } from "../node-view.ts";
import { Icon } from "../parts/icon.tsx";
import { plainText } from "../plain-text.ts";
import { entryOf, pathTo, route, viewNames } from "../route.ts";
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
