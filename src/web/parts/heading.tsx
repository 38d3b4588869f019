import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { route } from "../route.ts";

/**
 * The heading of a view: whoever comes with the keyboard or a screen reader begins here. A title that becomes another one
 * while one is there moves nobody.
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
