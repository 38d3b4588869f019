/** The `--watch` option of lists. The code that watches is loaded only when the option is set. */
import type { Action } from "../run-command.ts";

export const watchOption = ["-w, --watch", "update until Ctrl-C"] as const;

/** An action that repeats if its options have `watch`. Its JSON is then one line per update. */
export function watchable<Args extends readonly unknown[]>(action: Action<Args>): Action<Args> {
  return async (context, ...args) => {
    if (!args.some(hasWatch)) return action(context, ...args);
    const { watch } = await import("./watch-list.ts");
    return watch(context, (once) => action(once, ...args));
  };
}

function hasWatch(value: unknown): boolean {
  return typeof value === "object" && value !== null && "watch" in value && value.watch === true;
}
