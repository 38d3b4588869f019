/**
 * The ID of a new app: the name that the caller chose, else the ID of its package or of the app that it copies, with a number
 * if that is taken. The number must not reveal other users' apps: if an app that the caller cannot see has the ID, the
 * caller's user name is added.
 */
import { SvcError } from "../../errors.ts";
import type { AppCaller, AppRegistry } from "./app-registry.ts";

export interface NewId {
  caller: AppCaller;
  /** May be empty. */
  callerName: string;
  /** True for a clone, which always gets a number. */
  kind: "install" | "clone";
  baseId: string;
}

type Holder = "nobody" | "visible" | "hidden";

/** Maximum length of a name in the contract. */
const maxNameLength = 64;

/**
 * Checks a name that the caller chose as the ID.
 * @throws SvcError `already_exists` with a suggestion if an app has it as its ID, or an app that the caller
 * sees as its displayed name
 */
export function requireFreeName(registry: AppRegistry, request: Omit<NewId, "kind">): string {
  const { caller, baseId: name } = request;
  const holder = holderOf(name, registry, caller);
  const isShown = registry.visible(caller).some((app) => app.name === name);
  if (holder === "nobody" && !isShown) return name;
  const free = firstFreeId(registry, { ...request, kind: holder === "hidden" ? "install" : "clone" });
  const suggestion = free.length <= maxNameLength ? `try "${free}"` : "choose another one";
  throw new SvcError("already_exists", `name "${name}" is taken; ${suggestion}`);
}

/** The next free of `beta`, `beta-2`, `beta-3`, …; of `beta-ann`, `beta-ann-2`, … if an app that Ann cannot see has one. */
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

/** The caller's name, reduced to the characters of IDs. */
function suffixOf(callerName: string, { uid }: AppCaller): string {
  const name = callerName.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
  return name.replaceAll(/^-|-$/g, "") || `u${uid}`;
}
