/** Stacks with keys and forms of compose that the other stacks do not have. */
import { testStacks } from "../../support/stack-life.ts";
import { publishedStacks } from "../../support/published-stacks.ts";

testStacks(publishedStacks);
