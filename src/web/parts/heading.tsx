import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { route } from "../route.ts";

/**
 * The heading of a view. It gets the focus when the view opens, for keyboards and screen readers. A later
 * change of the title does not move the focus.
 */
export function Heading({ title, children }: { title: string; children?: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => void (document.title = `${title} – svc`), [title]);
  useLayoutEffect(() => {
    heading.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [route.value]);
  return (
    <h1 ref={heading} tabIndex={-1}>
      <bdi>{title}</bdi>
      {children}
    </h1>
  );
}
