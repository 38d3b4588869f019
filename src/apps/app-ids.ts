/**
 * What a new app is called (decisions 11, 37): the id that its package, or the app it is a copy of, asks for, else that id
 * with a number. What somebody else has must not show in the number, so where an app that the caller cannot see is in the
 * way, the caller's name comes in between.
 */
import type { AppCaller, AppRegistry } from "./app-registry.ts";

export interface NewId {
  caller: AppCaller;
  /** May be empty. */
  callerName: string;
  /** A clone never gets the id as it is. */
  kind: "install" | "clone";
  baseId: string;
}

type Holder = "nobody" | "visible" | "hidden";

/** `beta`, `beta-2`, `beta-3`, …; for whom a stranger's app is in the way `beta-ann`, `beta-ann-2`, …. */
export function firstFreeId(registry: AppRegistry, { caller, callerName, kind, baseId }: NewId): string {
  for (const id of candidates(baseId, kind)) {
    const holder = holderOf(id, registry, caller);
    if (holder === "nobody") return id;
    if (holder === "hidden") break;
  }
  for (const id of candidates(`${baseId}-${suffixOf(callerName, caller)}`, kind)) {
    if (holderOf(id, registry, caller) === "nobody") return id;
  }
  throw new Error("ids do not run out");
}

function* candidates(base: string, kind: NewId["kind"]): Generator<string, void> {
  if (kind === "install") yield base;
  for (let n = 2; ; n++) yield `${base}-${n}`;
}

function holderOf(id: string, registry: AppRegistry, { root, uid }: AppCaller): Holder {
  const operation = registry.operationOf(id);
  const holderUid = registry.get(id)?.ownerUid ?? operation?.detail.runUid;
  if (holderUid === undefined && operation === undefined) return "nobody";
  return root || holderUid === uid ? "visible" : "hidden";
}

/** The caller's name in the letters of ids. */
function suffixOf(callerName: string, { uid }: AppCaller): string {
  const name = callerName.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
  return name.replaceAll(/^-|-$/g, "") || `u${uid}`;
}
