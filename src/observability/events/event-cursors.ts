/**
 * Cursors of events. The number of an event counts the events of all users, so a cursor encrypts the number: two cursors do not
 * show a user how much happened in between.
 */
import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { invalidField } from "../../errors.ts";

const cipher = "aes-128-ecb";
/** Cursors of daemons before 0.3. */
const earlierCursor = /^[0-9a-f]{12}-\d{1,15}$/;
const blockBytes = 16;

export class EventCursors {
  /** A new key per daemon, so that cursors of another daemon do not match an event. */
  readonly #key = randomBytes(16);

  /** Encrypts one block with the number and random bytes, so that two cursors of the same event differ. */
  cursorOf(number: number): string {
    const block = randomBytes(blockBytes);
    block.writeBigUInt64BE(BigInt(number));
    const encryption = createCipheriv(cipher, this.#key, null).setAutoPadding(false);
    return encryption.update(block).toString("hex");
  }

  /**
   * The number of the event; undefined for a cursor of another daemon.
   * @throws SvcError `invalid_request` for a text that is not a cursor
   */
  numberOf(cursor: string): number | undefined {
    if (earlierCursor.test(cursor)) return undefined;
    if (!/^[0-9a-f]{32}$/.test(cursor)) throw invalidField("after", "is not the cursor of an event");
    const decryption = createDecipheriv(cipher, this.#key, null).setAutoPadding(false);
    const number = decryption.update(Buffer.from(cursor, "hex")).readBigUInt64BE();
    return number <= Number.MAX_SAFE_INTEGER ? Number(number) : undefined;
  }
}
