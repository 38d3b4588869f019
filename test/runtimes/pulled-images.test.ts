/** Images that svc pulled for a regular user and cannot read. */
import { Readable } from "node:stream";
import test, { type ExecutionContext } from "ava";
import { SvcError, notFound } from "../../src/errors.ts";
import { AppImages, type AppImagesOptions } from "../../src/runtimes/docker/app-images.ts";
import { errorOf } from "../support/errors.ts";

const uid = 65_534;
const name = "registry.example:5000/app";
const digest = `sha256:${"d".repeat(64)}`;
const before = { Id: "before", RepoTags: [], RepoDigests: [], Config: {} };

/** An engine with these images by their names; `new` is what it pulls, and cannot be inspected. */
class FakeEngine {
  readonly names = new Map<string, string>();
  readonly recorded: string[] = [];
  /** How often a removal fails. */
  busy = 0;
  onPull: () => void = () => undefined;

  readonly #docker = {
    getImage: (reference: string) => ({
      distribution: async () => ({ Descriptor: { digest } }),
      inspect: async () => this.#inspect(reference),
      remove: async () => this.#remove(reference),
      tag: async ({ repo, tag }: { repo: string; tag: string }) =>
        void this.names.set(`${repo}:${tag}`, reference),
    }),
    createImage: async ({ fromImage }: { fromImage: string }) => {
      this.names.set(fromImage, "new").set(`${name}@${digest}`, "new");
      this.onPull();
      return Readable.from([Buffer.from(`${JSON.stringify({ status: `Digest: ${digest}` })}\n`)]);
    },
  };

  #inspect(reference: string): object {
    const id = this.names.get(reference);
    if (id === undefined) throw notFound("image", reference);
    if (id === "new") throw new SvcError("unavailable", "an answer of more than 64 MiB");
    return before;
  }

  #remove(reference: string): void {
    if (this.busy-- > 0) throw new SvcError("unavailable", "the engine is slow");
    this.names.delete(reference);
    // The engine forgets the digests of a repository with its last tag.
    if (!this.names.has(`${name}:1`)) this.names.delete(`${name}@${digest}`);
  }

  images(): AppImages {
    const run = (_what: string, work: (docker: unknown) => Promise<unknown>): Promise<unknown> =>
      work(this.#docker);
    const options = {
      engine: { call: run, operate: run },
      credentialsOf: async () => undefined,
      userImages: {
        restricts: () => true,
        record: async (_uid: number, reference: string) => void this.recorded.push(reference),
      },
      userObjects: { requireImages: async () => undefined },
    };
    return new AppImages(options as unknown as AppImagesOptions);
  }
}

async function pull(t: ExecutionContext, engine: FakeEngine, signal?: AbortSignal): Promise<void> {
  await errorOf(engine.images().pull(uid, `${name}:1`, { signal }));
  t.deepEqual(engine.recorded, []);
}

test("a pulled image that cannot be read is removed", async (t) => {
  const engine = new FakeEngine();
  await pull(t, engine);
  t.deepEqual([...engine.names], []);
});

test("a pulled image that cannot be read is removed by an engine that fails at first", async (t) => {
  const engine = new FakeEngine();
  engine.busy = 2;
  await pull(t, engine);
  t.deepEqual([...engine.names], []);
});

test("a pulled image that cannot be read returns its name to the image before", async (t) => {
  const engine = new FakeEngine();
  engine.names.set(`${name}:1`, "before");
  await pull(t, engine);
  t.deepEqual([...engine.names], [[`${name}:1`, "before"]]);
});

test("an image that cannot be read is removed when its pull is canceled at the end", async (t) => {
  const engine = new FakeEngine();
  const controller = new AbortController();
  engine.onPull = () => {
    controller.abort();
    throw new SvcError("canceled", "the client went away");
  };
  await pull(t, engine, controller.signal);
  t.deepEqual([...engine.names], []);
});
