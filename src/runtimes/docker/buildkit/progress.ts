/** Output lines of a build from the status of its steps. */
import { StringDecoder } from "node:string_decoder";
import type { SolveStatus } from "../../../engine/buildkit/control-messages.ts";

/** Steps of BuildKit itself, such as loading the context. */
const internal = /^\[(?:internal|auth)\] |^\[context [^\]]*\] load |^exporting /;

export class StepLines {
  readonly #onText: (text: string) => void;
  /** Steps that were reported, by digest. */
  readonly #reported = new Set<string>();
  /** By step and stream. */
  readonly #decoders = new Map<string, StringDecoder>();

  /** @param onText receives output, which ends with a newline only where the build's does */
  constructor(onText: (text: string) => void) {
    this.#onText = onText;
  }

  add({ vertexes, logs }: SolveStatus): void {
    for (const { digest, name, isStarted, isCached, error } of vertexes) {
      if (!isStarted || internal.test(name)) continue;
      if (!this.#reported.has(digest)) {
        this.#reported.add(digest);
        this.#onText(`${isCached ? "CACHED " : ""}${name}\n`);
      }
      if (error !== "" && !/context canceled/.test(error)) this.#onText(`${error}\n`);
    }
    for (const { source, data } of logs) {
      const decoder = this.#decoders.get(source) ?? new StringDecoder();
      this.#decoders.set(source, decoder);
      this.#onText(decoder.write(Buffer.from(data)));
    }
  }
}
