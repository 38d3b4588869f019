/**
 * Determines which app owns an engine object. Names and labels prove nothing: containers, builds included, inherit
 * the labels of their image, and anyone can write `LABEL svc.app=…`. Everything that svc creates therefore carries a
 * proof that only svc can compute, one per app and kind of object.
 */
import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { BoundedMemo } from "../lib/bounded-memo.ts";
import { storeIdOf } from "../store/store-id.ts";
import type { Store } from "../store/store.ts";
import { appLabel, proofLabel, storeLabel, type Labels } from "./attribution.ts";

/** A proof is valid for one kind only, because containers inherit the labels of their image. */
export type ObjectKind = "container" | "volume" | "network" | "image" | "service" | "file";

export interface EngineObject {
  readonly labels: Labels | null | undefined;
  /** A container's name or an image's tags; only objects without a proof need them. */
  readonly names?: readonly string[];
}

export interface EngineOwnershipOptions {
  storeId: string;
  /** Secret of this store. */
  key: string;
  /** Whether the app was installed before svc created proofs, so that its objects may have none. */
  isUnverified: (appId: string) => boolean;
}

/** Enough for every app and kind of a large host; each takes about 100 bytes. */
const maxRemembered = 16_384;
/** Characters of a digest in names. */
const nameDigestLength = 12;
/**
 * While compose replaces a container, it prefixes the new name with the previous container's ID. The engine's
 * generated names never match this.
 */
const svcContainerName = /^\/?(?:[0-9a-f]{12}_)?svc-/;
const svcImageTag = /^svc\.local\//;

export class EngineOwnership {
  readonly #options: EngineOwnershipOptions;
  readonly #proofs = new BoundedMemo<string, string>(maxRemembered);

  constructor(options: EngineOwnershipOptions) {
    this.#options = options;
  }

  get storeId(): string {
    return this.#options.storeId;
  }

  /** The labels of a new object of the app. */
  labels(kind: ObjectKind, appId: string): Record<string, string> {
    const { storeId } = this.#options;
    return { [appLabel]: appId, [storeLabel]: storeId, [proofLabel]: this.#proof(kind, appId) };
  }

  /** ID of the app that the object was created for, installed or not; `undefined` without a valid proof. */
  ownerOf(kind: ObjectKind, { labels, names = [] }: EngineObject): string | undefined {
    const { [appLabel]: appId = "", [proofLabel]: proof, [storeLabel]: storeId } = labels ?? {};
    if (appId === "") return undefined;
    if (proof !== undefined) return isEqual(proof, this.#proof(kind, appId)) ? appId : undefined;
    const isEarlier =
      storeId === this.#options.storeId && isNamedBySvc(kind, names) && this.#options.isUnverified(appId);
    return isEarlier ? appId : undefined;
  }

  isOwn(kind: ObjectKind, appId: string, object: EngineObject): boolean {
    return this.ownerOf(kind, object) === appId;
  }

  /** A filter for engine lists, whose result may include objects that {@link isOwn} rejects. */
  filter(appId?: string): { label: string[] } {
    const { storeId } = this.#options;
    const ofApp = appId === undefined ? [] : [`${appLabel}=${appId}`];
    return { label: [...ofApp, `${storeLabel}=${storeId}`] };
  }

  /**
   * The app's compose project. Nobody else can create an object under this name, because the digest in it is secret.
   */
  projectOf(appId: string): string {
    return this.#options.isUnverified(appId) ? earlierProjectOf(appId) : this.#nameOf(appId);
  }

  /** The network of an app that is a single container, and the prefix of its names on a swarm. */
  networkOf(appId: string): string {
    if (!this.#options.isUnverified(appId)) return this.#nameOf(appId);
    const digest = createHash("sha256").update(`${this.#options.storeId}/${appId}`).digest("hex").slice(0, 8);
    return `svc-${appId}-${digest}`;
  }

  /** Replaces dots, which compose does not allow in names. */
  #nameOf(appId: string): string {
    return `svc-${appId.replaceAll(".", "-")}-${this.#digest("name", appId).slice(0, nameDigestLength)}`;
  }

  #proof(kind: ObjectKind, appId: string): string {
    return this.#digest(kind, appId);
  }

  #digest(use: ObjectKind | "name", appId: string): string {
    const text = JSON.stringify([use, appId]);
    return this.#proofs.get(text, () => createHmac("sha256", this.#options.key).update(text).digest("hex"));
  }
}

export function createOwnership(store: Pick<Store, "get">): EngineOwnership {
  const row = store.get<{ value: string }>("SELECT value FROM engine_key");
  if (row === undefined) throw new Error("the store has no key for the container engine");
  return new EngineOwnership({
    storeId: storeIdOf(store),
    key: row.value,
    isUnverified: (id) => store.get("SELECT 1 FROM unproven_apps WHERE id = ?", id) !== undefined,
  });
}

export interface AttributionOptions {
  ownership: EngineOwnership;
  /** IDs of the installed apps. */
  appIds: Iterable<string>;
}

/** Returns the installed app that owns an object; `undefined` if no installed app does. */
export type Attribution = (kind: ObjectKind, object: EngineObject) => string | undefined;

export function createAttribution({ ownership, appIds }: AttributionOptions): Attribution {
  const installed = new Set(appIds);
  return (kind, object) => {
    const appId = ownership.ownerOf(kind, object);
    return appId !== undefined && installed.has(appId) ? appId : undefined;
  };
}

/** Only svc gives containers and images such names. Other kinds of objects inherit no labels. */
function isNamedBySvc(kind: ObjectKind, names: readonly string[]): boolean {
  if (kind === "container") return names.some((name) => svcContainerName.test(name));
  return kind !== "image" || names.some((name) => svcImageTag.test(name));
}

function earlierProjectOf(appId: string): string {
  if (!appId.includes(".")) return `svc-${appId}`;
  const digest = createHash("sha256").update(appId).digest("hex").slice(0, 8);
  return `svc-${appId.replaceAll(".", "-")}-${digest}`;
}

function isEqual(a: string, b: string): boolean {
  return a.length === b.length && timingSafeEqual(Buffer.from(a, "latin1"), Buffer.from(b, "latin1"));
}
