/** Secrets masked in texts that people read. */
import test from "ava";
import { maskSecretTexts } from "../../src/lib/secret-mask.ts";

const line = "a backup of app data started; pass data=data7, passphrase";

for (const [title, secret, masked] of [
  ["a secret of one letter leaves a text as it is", "a", line],
  ["an empty secret leaves a text as it is", "", line],
  ["a short secret inside longer words stays readable", "pass", line.replace("pass ", "*** ")],
  ["a short secret is masked where it is a word", "data", line.replaceAll(/\bdata\b/g, "***")],
  ["a long secret is masked inside a longer word", "passphra", line.replace("passphra", "***")],
] as const) {
  test(title, (t) => t.is(maskSecretTexts(line, [secret]), masked));
}

test("the longer of two secrets is masked whole", (t) => {
  t.is(maskSecretTexts("key s3cr3t-token-1 sent", ["s3cr3t-token", "s3cr3t-token-1"]), "key *** sent");
});

test("characters with a meaning in patterns are masked as they are", (t) => {
  t.is(maskSecretTexts("sent a.c$&+(x and abcd", ["a.c$&+(x"]), "sent *** and abcd");
});
