import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface FactsProps {
  readonly title: string;
  /** Entries without a value are not shown. */
  readonly facts: readonly (readonly [name: string, value: ComponentChildren])[];
  readonly children?: ComponentChildren;
}

/** Names and values that describe one object. */
export function Facts({ title, facts, children }: FactsProps) {
  const id = useId();
  return (
    <section class="card" aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      <dl class="facts">
        {facts
          .filter(([, value]) => value !== "" && value !== undefined && value !== false)
          .map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
      {children}
    </section>
  );
}
