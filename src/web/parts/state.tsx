import { texts } from "../texts.ts";

/** A shape for each kind of state, so that states do not depend on color. */
const shapes: Readonly<Record<string, [shape: string, kind: string]>> = {
  RUNNING: ["●", "good"],
  STOPPED: ["○", "idle"],
  FAILED: ["▲", "bad"],
  CRASHED: ["▲", "bad"],
  UNHEALTHY: ["▲", "bad"],
  UNKNOWN: ["?", "unsure"],
};

export function State({ state }: { state: string }) {
  const [shape, kind] = shapes[state] ?? ["◐", "busy"];
  return (
    <span class={`state ${kind}`} data-state={state}>
      <span aria-hidden="true">{shape}</span> {texts.states[state] ?? state}
    </span>
  );
}
