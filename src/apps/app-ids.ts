/**
 * What a new app is called (decisions 11, 37): the id that its package, or the app it is a copy of, asks for, else that id
 * with a number. What somebody else has must not show in the number, so where an app that the caller cannot see is in the
 * way, the caller's name comes in between.
 */
import type { AppCaller, AppRegistry } from "./app-registry.ts";

export interface AppIdsOptions {
  registry: AppRegistry;
  caller: AppCaller;
  /** May be empty. */
  callerName: string;
  /** A clone never gets the id as it is. */
  kind: "install" | "clone";
  baseId: string;
}

type Holder = "nobody" | "visible" | "hidden";

export class AppIds {
  readonly #options: AppIdsOptions;

  constructor(options: AppIdsOptions) {
    this.#options = options;
  }

  /** `beta`, `beta-2`, `beta-3`, …; for whom a stranger's app is in the way `beta-ann`, `beta-ann-2`, …. */
  firstFree(): string {
    const { baseId } = this.#options;
    for (const id of this.#candidates(baseId)) {
      const holder = this.#holderOf(id);
      if (holder === "nobody") return id;
      if (holder === "hidden") break;
    }
    for (const id of this.#candidates(`${baseId}-${this.#suffix()}`)) {
      if (this.#holderOf(id) === "nobody") return id;
    }
    throw new Error("ids do not run out");
  }

  *#candidates(base: string): Generator<string, void> {
    if (this.#options.kind === "install") yield base;
    for (let n = 2; ; n++) yield `${base}-${n}`;
  }

  #holderOf(id: string): Holder {
    const { registry, caller } = this.#options;
    const uid = registry.get(id)?.ownerUid ?? registry.operationOf(id)?.detail.runUid;
    if (uid === undefined && registry.operationOf(id) === undefined) return "nobody";
    return caller.root || uid === caller.uid ? "visible" : "hidden";
  }

  /** The caller's name in the letters of ids. */
  #suffix(): string {
    const { caller, callerName } = this.#options;
    const name = callerName.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
    return name.replaceAll(/^-|-$/g, "") || `u${caller.uid}`;
  }
}
