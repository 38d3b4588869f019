import type { ComponentChildren } from "preact";
import type { NodeView } from "../node-view.ts";
import { plainText } from "../plain-text.ts";
import { pathTo, route, viewNames } from "../route.ts";
import { signOut } from "../session.ts";
import { texts } from "../texts.ts";
import { views } from "../views.tsx";

/** What is around every view: where one is, who one is, and whether what is shown is live. */
export function Frame({ node, children }: { node: NodeView; children: ComponentChildren }) {
  const status = node.status.value;
  const connection = node.connection.value;
  const { view } = route.value;
  const skip = (event: Event): void => {
    event.preventDefault();
    document.querySelector<HTMLElement>("h1")?.focus();
  };
  return (
    <>
      <a class="skip" href="#content" onClick={skip}>
        {texts.skip}
      </a>
      <header class="bar">
        <span class="brand">svc</span>
        <nav aria-label={texts.mainNavigation}>
          {viewNames
            .filter((name) => views[name].entry === name)
            .map((name) => (
              <a
                key={name}
                href={pathTo(name)}
                aria-current={views[view].entry === name ? "page" : undefined}
              >
                {views[name].title}
              </a>
            ))}
        </nav>
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
        <button type="button" onClick={() => void signOut()}>
          {texts.signOut}
        </button>
      </header>
      <main id="content" class={connection === "lost" ? "old" : ""}>
        {children}
      </main>
    </>
  );
}
