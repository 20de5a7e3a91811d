/** Output of a program without escape sequences and control characters, which could hide or fake lines. */

const SEQUENCES =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is removed
  /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -~])/g;
const CONTROLS = /(?![\n\t])[\p{Cc}\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

export function plainText(output: string): string {
  return output.replace(/\r\n/g, '\n').replace(SEQUENCES, '').replace(CONTROLS, '');
}
