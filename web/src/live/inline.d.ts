declare module "*?worker&inline" {
  const constructor: new () => Worker;
  export default constructor;
}
