/** The primary token and its rotation. During the grace period of a rotation the replaced token is valid, too. */
import { SvcError } from "../../errors.ts";
import type { Clock } from "../../lib/clock.ts";
import { Limiter } from "../../lib/limiter.ts";
import type { Store } from "../../store/store.ts";
import { LiveToken, Lifetime } from "./live-token.ts";
import { RotationRecord, type RotationWindow } from "./rotation-record.ts";
import { isSameDigest, tokenDigest } from "./token-digest.ts";
import { openTokenFile, removeStagedTokens, stageTokenFile, syncTokenFile } from "./token-file.ts";
import type { Log } from "../../lib/log.ts";

/** Longest grace period; a clock that was set back while the daemon was down cannot extend it. */
const maxGraceSecs = 86_400;
/** Maximum number of queued changes. */
const maxWaiting = 15;

export interface PrimaryTokenOptions {
  /** `api.token`. */
  readonly file: string;
  /** The daemon's own uid: only it (or root) may own the file. */
  readonly selfUid: number;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn" | "error">;
  /** Called when a new token became the primary one. The previous token is valid until its grace period ends. */
  readonly onRotated: () => void;
  /** Called when a former primary token is no longer valid. */
  readonly onEnded: (name: string) => void;
}

/** The result of a rotation; the token is shown only once. */
export interface Rotation {
  readonly token: string;
  /** When the replaced token ends, unix milliseconds. */
  readonly graceUntilMs: number;
}

interface Replaced {
  readonly live: LiveToken;
  readonly life: Lifetime;
}

export class PrimaryToken implements Disposable {
  readonly #options: PrimaryTokenOptions;
  readonly #record: RotationRecord;
  readonly #subscription: Disposable;
  #opened: Promise<void> | undefined;
  #current: LiveToken | undefined;
  #replaced: Replaced | undefined;
  /** Changes run one at a time. */
  readonly #changes = new Limiter<"token">({
    ...{ total: 1, perKey: 1, maxWaiting },
    tooMany: () => new SvcError("too_many", "too many rotations wait; try again in a moment"),
  });

  constructor(options: PrimaryTokenOptions) {
    this.#options = options;
    this.#record = new RotationRecord(options.store, options.log);
    this.#subscription = options.store.onChange(() => this.#follow());
  }

  /** Reads the token file, or creates it on the daemon's first start. @throws as {@link openTokenFile} */
  open(): Promise<void> {
    return (this.#opened ??= this.#open());
  }

  /** Compares with both tokens in constant time. */
  find(digest: Buffer): { kind: "primary" | "replaced"; live: LiveToken } | undefined {
    const primary = this.#current;
    const replaced = this.#replaced?.life.isOver === false ? this.#replaced.live : undefined;
    const isPrimary = primary !== undefined && isSameDigest(digest, primary.digest);
    const isReplaced = replaced !== undefined && isSameDigest(digest, replaced.digest);
    if (isPrimary) return { kind: "primary", live: primary };
    return isReplaced ? { kind: "replaced", live: replaced } : undefined;
  }

  /** First 12 hex digits of the digest, once it is open. */
  get name(): string {
    return this.#known.name;
  }

  /** When the replaced token ends, unix milliseconds; `undefined` while no window is open. */
  get graceUntilMs(): number | undefined {
    return this.#replaced?.life.isOver === false ? this.#replaced.life.endsAtMs : undefined;
  }

  /**
   * Creates a new primary token. The current one stays valid for the grace period; a token that an earlier rotation replaced ends now.
   * @param caller name of the presented token; `undefined` for a caller without one
   * @throws SvcError `permission_denied` (`token_denied`) if the caller's token is no longer the primary one;
   *   as {@link stageTokenFile} and `Store.write`, in which case nothing has changed
   */
  rotate(caller: string | undefined, graceSecs: number): Promise<Rotation> {
    return this.#exclusively(async () => {
      const { file, clock, log } = this.#options;
      const old = this.#require(caller, "rotate it");
      const staged = await stageTokenFile(file);
      const fresh = new LiveToken(tokenDigest(staged.token));
      const window = { primary: hex(fresh), replaced: hex(old), untilMs: clock.nowMs() + graceSecs * 1000 };
      const standing = this.#record.load();
      try {
        // Both windows are recorded until the token file decides which one counts.
        await this.#record.save([window, ...standing]);
        await staged.replace();
      } catch (error) {
        await staged.discard();
        await this.#settle(standing);
        throw error;
      }
      // The new token is in place, so nothing is rolled back from here on.
      await syncTokenFile(file).catch((err: unknown) =>
        log.warn({ err }, "failed to sync the directory of the token file"),
      );
      this.#become(fresh, window);
      await this.#settle([window]);
      log.info({ tokenDigest: fresh.name, replaced: old.name, graceSecs }, "the primary token was rotated");
      return { token: staged.token, graceUntilMs: window.untilMs };
    });
  }

  /**
   * Closes the window: the replaced token ends now.
   * @param caller as in {@link rotate}
   * @returns whether a window was open
   * @throws SvcError `permission_denied` (`token_denied`) for the replaced token, and as `Store.write`
   */
  commit(caller: string | undefined): Promise<boolean> {
    return this.#exclusively(async () => {
      this.#require(caller, "commit its rotation");
      this.sweep();
      if (this.#replaced === undefined) return false;
      // Written to disk first, so that a restart does not open the window again.
      await this.#record.save([]);
      this.#endReplaced("the rotation that replaced this primary token was committed");
      return true;
    });
  }

  /** Ends the replaced token when its grace period is over. @returns whether a window is open */
  sweep(): boolean {
    if (this.#replaced?.life.isOver !== true) return this.#replaced !== undefined;
    this.#endReplaced("the grace of this replaced primary token is over");
    // Otherwise a clock that is set back would open the window again at the next start.
    void this.#exclusively(async () => {
      if (this.#replaced === undefined) await this.#settle([]);
    }).catch(() => undefined);
    return false;
  }

  [Symbol.dispose](): void {
    this.#subscription[Symbol.dispose]();
  }

  async #open(): Promise<void> {
    const { file, selfUid, store, clock } = this.#options;
    const token = await openTokenFile(file, selfUid);
    await removeStagedTokens(file, clock.nowMs());
    this.#current = new LiveToken(tokenDigest(token));
    // A restored snapshot of the database may contain a window that was closed since.
    const windows = store.restoration === undefined ? this.#record.load() : [];
    const window = this.#windowOf(this.#current, windows);
    if (window !== undefined) this.#openWindow(new LiveToken(Buffer.from(window.replaced, "hex")), window);
    await this.#settle(window === undefined ? [] : [window]);
  }

  /** The window of a primary token, unless it is over. */
  #windowOf(primary: LiveToken, windows: readonly RotationWindow[]): RotationWindow | undefined {
    const nowMs = this.#options.clock.nowMs();
    return windows.find((window) => window.primary === hex(primary) && window.untilMs > nowMs);
  }

  #become(fresh: LiveToken, window: RotationWindow | undefined): void {
    const old = this.#current;
    this.#endReplaced("a later rotation ended this replaced primary token");
    this.#current = fresh;
    this.#options.onRotated();
    if (old === undefined) return;
    if (window?.replaced === hex(old) && window.untilMs > this.#options.clock.nowMs()) {
      this.#openWindow(old, window);
    } else {
      // On the next turn of the event loop, so that the call that rotated with this token still gets its response.
      setImmediate(() => this.#end(old, "this primary token was replaced without a grace"));
    }
  }

  #openWindow(live: LiveToken, { untilMs }: RotationWindow): void {
    const { clock } = this.#options;
    const graceMs = Math.min(untilMs - clock.nowMs(), maxGraceSecs * 1000);
    this.#replaced = { live, life: new Lifetime(clock, graceMs) };
  }

  #endReplaced(message: string): void {
    const replaced = this.#replaced;
    this.#replaced = undefined;
    if (replaced !== undefined) this.#end(replaced.live, message);
  }

  #end(live: LiveToken, message: string): void {
    live.end(message);
    this.#options.onEnded(live.name);
  }

  /** Updates the record after the token file has changed. A failure is harmless, because the file decides. */
  async #settle(windows: readonly RotationWindow[]): Promise<void> {
    try {
      await this.#record.save(windows);
    } catch (err) {
      this.#options.log.warn({ err }, "failed to update the record of a token rotation");
    }
  }

  /** A command that works without the daemon may have rotated or committed in the meantime. */
  #follow(): void {
    if (this.#current === undefined || !this.#record.isStale) return;
    void this.#exclusively(() => this.#reload()).catch((err: unknown) => {
      this.#options.log.warn({ err }, "failed to read the primary token again");
    });
  }

  async #reload(): Promise<void> {
    if (!this.#record.isStale) return;
    const { file, selfUid, log } = this.#options;
    const windows = this.#record.load();
    const found = new LiveToken(tokenDigest(await openTokenFile(file, selfUid)));
    const window = this.#windowOf(found, windows);
    if (this.#current !== undefined && isSameDigest(found.digest, this.#current.digest)) {
      if (window === undefined)
        this.#endReplaced("the rotation that replaced this primary token was committed");
      return;
    }
    this.#become(found, window);
    log.info({ tokenDigest: found.name }, "another process rotated the primary token");
  }

  get #known(): LiveToken {
    if (this.#current === undefined) throw new Error("the primary token was not opened");
    return this.#current;
  }

  /** @returns the primary token if the caller presented it or no token */
  #require(caller: string | undefined, what: string): LiveToken {
    const current = this.#known;
    if (caller === undefined || caller === current.name) return current;
    throw new SvcError(
      "token_denied",
      `the presented token was replaced by a rotation; only the new primary token may ${what}`,
      { payload: {} },
    );
  }

  async #exclusively<T>(work: () => Promise<T>): Promise<T> {
    using _slot = await this.#changes.acquire("token");
    return await work();
  }
}

function hex({ digest }: LiveToken): string {
  return digest.toString("hex");
}
