/** The known word that a mistyped word probably means: at most two edits away, one if the word has fewer than five letters. */
export function nearWord(word: string, known: readonly string[]): string | undefined {
  const typed = plainText(word);
  const limit = word.length < 5 ? 1 : 2;
  const near = known.map((each) => ({ each, edits: editsBetween(typed, plainText(each), limit) }));
  const hasOtherLength = ({ each }: { each: string }): number => Number(each.length !== word.length);
  return near
    .toSorted((one, other) => one.edits - other.edits || hasOtherLength(one) - hasOtherLength(other))
    .find(({ edits }) => edits <= limit)?.each;
}

function plainText(word: string): string {
  return word.toLowerCase().replaceAll(/[-_]/g, "");
}

/**
 * The Levenshtein distance, where two swapped neighbors count as one edit (optimal string alignment); above `limit`, any number above
 * it. Both words may come from a user, and a table of all distances would block the event loop for seconds.
 */
function editsBetween(one: string, other: string, limit: number): number {
  let same = 0;
  while (same < one.length && one[same] === other[same]) same += 1;
  const [rest, otherRest] = [one.slice(same), other.slice(same)];
  if (rest === otherRest) return 0;
  if (limit === 0 || Math.abs(rest.length - otherRest.length) > limit) return limit + 1;
  const edits = (skipped: number, otherSkipped: number): number =>
    1 + editsBetween(rest.slice(skipped), otherRest.slice(otherSkipped), limit - 1);
  const isSwap = rest[0] === otherRest[1] && rest[1] === otherRest[0];
  return Math.min(edits(1, 0), edits(0, 1), edits(1, 1), isSwap ? edits(2, 2) : Number.POSITIVE_INFINITY);
}
