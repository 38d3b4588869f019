/** `--watch` of a list. It is in the first stage, so that what watching takes is loaded by those who watch. */
import type { Action } from "./run-command.ts";

export const watchOption = ["-w, --watch", "go on until Ctrl-C"] as const;

/** An action that goes on when its options say `watch`. Its JSON is a line each time then. */
export function watchable<Args extends readonly unknown[]>(action: Action<Args>): Action<Args> {
  return async (context, ...args) => {
    if (!args.some(saysWatch)) return action(context, ...args);
    const { watch } = await import("./watch-list.ts");
    return watch(context, (once) => action(once, ...args));
  };
}

function saysWatch(value: unknown): boolean {
  return typeof value === "object" && value !== null && "watch" in value && value.watch === true;
}
