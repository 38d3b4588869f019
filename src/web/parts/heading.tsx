import { useLayoutEffect, useRef } from "preact/hooks";
import type { ComponentChildren } from "preact";

/** The heading of a view: whoever comes with the keyboard or a screen reader begins here. */
export function Heading({ title, children }: { title: string; children?: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useLayoutEffect(() => {
    document.title = `${title} – svc`;
    heading.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [title]);
  return (
    <h1 ref={heading} tabIndex={-1}>
      <bdi>{title}</bdi>
      {children}
    </h1>
  );
}
