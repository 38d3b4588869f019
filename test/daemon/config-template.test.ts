/** The configuration that `svc setup` writes: every key, and the same effect as no file. */
import test from "ava";
import { parse } from "smol-toml";
import { configTemplate } from "../../src/daemon/config-template.ts";
import { parseConfig } from "../../src/daemon/config.ts";

const environments = {
  root: { uid: 0, home: "/root", env: {} },
  user: { uid: 1000, home: "/home/me", env: { PATH: "/usr/bin:/bin", SSL_CERT_FILE: '/etc/"ca".pem' } },
};
const file = "/etc/svc/svc.toml";

/** Every table of `document`, recording keys that are read and missing. */
function watched(
  document: Record<string, unknown>,
  prefix: string,
  missing: Set<string>,
): Record<string, unknown> {
  const tables = Object.entries(document).map(([key, value]) => {
    if (Array.isArray(value) && typeof value[0] === "object")
      return [
        key,
        value.map((each) => watched(each as Record<string, unknown>, `${prefix}${key}.`, missing)),
      ];
    const isTable = typeof value === "object" && !Array.isArray(value) && key !== "build_env";
    return [key, isTable ? watched(value as Record<string, unknown>, `${prefix}${key}.`, missing) : value];
  });
  return new Proxy(Object.fromEntries(tables) as Record<string, unknown>, {
    get: (target, key: string) => {
      if (!(key in target)) missing.add(prefix + key);
      return target[key];
    },
  });
}

for (const [who, environment] of Object.entries(environments)) {
  test(`as written for ${who}, it has the effect of no file`, (t) => {
    const text = configTemplate(file, environment);
    t.deepEqual(parseConfig(parse(text), file, environment), parseConfig({}, file, environment));
  });

  test(`with all keys enabled it sets every key to its default, for ${who}`, (t) => {
    const text = configTemplate(file, environment).replaceAll(/^#(?=[a-z_[])/gm, "");
    const missing = new Set<string>();
    const config = parseConfig(watched(parse(text), "", missing), file, environment);
    // An alert has one of two.
    t.deepEqual([...missing], ["alerts.url"]);
    const defaults = parseConfig({}, file, environment);
    t.deepEqual(
      { ...config, sources: [], alerts: [], apps: { ...config.apps, rootRunsAs: undefined } },
      { ...defaults, sources: [], alerts: [] },
    );
    t.is(config.sources.length, 1);
    t.is(config.alerts.length, 1);
  });
}

test("a commented-out key shows its default, or is marked as an example", (t) => {
  for (const environment of Object.values(environments)) {
    const text = configTemplate(file, environment);
    const defaults = parseConfig({}, file, environment);
    let section = "";
    let words: string[] = [];
    let keys = 0;
    for (const line of text.split("\n")) {
      if (line.startsWith("[")) section = line;
      if (/^#\[\[/.test(line)) {
        t.regex(words.join(" "), / An example:$/, line);
        section = "";
      }
      if (line.startsWith("# ")) words.push(line);
      else {
        const isExample = words.at(-1)?.endsWith(" An example:") === true;
        if (/^#[a-z_]+ =/.test(line) && section !== "") {
          const taken = parseConfig(parse(`${section}\n${line.slice(1)}`), file, environment);
          if (isExample) t.notDeepEqual(taken, defaults, line);
          else t.deepEqual(taken, defaults, line);
          keys += 1;
        }
        words = [];
      }
    }
    t.true(keys > 40, String(keys));
  }
});
