/** A command is loaded whole before it runs: what the commands import at once is light. */
import test from "ava";
import { importsOf, parseSource } from "./sources.ts";

/** Each takes longer to load than a short command takes. */
const heavy =
  /^(?:node:(?:http2|https|tls|crypto|readline|child_process|zlib)|@(?:bufbuild|connectrpc)|yaml$|ajv)|_pb\.ts$/;
const program = "src/cli/command-list.ts";

test("no command imports something heavy before it runs", async (t) => {
  const commands = importsOf(await parseSource(program)).filter(({ isLazy }) => isLazy);
  t.true(commands.length > 30);
  const entries = ["src/main.ts", "src/cli/cli.ts", "src/cli/completion/complete.ts"];
  /** Each file that is loaded, and the file that imports it. */
  const importers = new Map([...entries, ...commands.map(({ to }) => to)].map((file) => [file, program]));
  for (const [file] of importers) {
    if (!file.endsWith(".ts") || heavy.test(file)) continue;
    for (const { to, isTypeOnly, isLazy } of importsOf(await parseSource(file))) {
      if (!isTypeOnly && !isLazy && !importers.has(to)) importers.set(to, file);
    }
  }
  t.true(importers.size > 100);
  t.deepEqual(
    [...importers].filter(([file]) => heavy.test(file)).map(([file, by]) => `${by} imports ${file}`),
    [],
  );
});
