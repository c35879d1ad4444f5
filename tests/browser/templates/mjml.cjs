// Mails written for MJML, one for each of its components and the usual layouts; MJML makes of them what people send.
"use strict";

const TEXT = "The night train leaves at 21:46 from platform 7. Berths are made up by the time that it reaches the border.";
// A picture that is in the mail itself: 2 × 2 pixels, blue and amber.
const PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAE0lEQVR4nGNQCT/6/0Q4AxADWQAvQAa9O5ykhQAAAABJRU5ErkJggg==";
const REMOTE = "https://images.timetable.test";

const mail = (body, head = "") => `<mjml><mj-head><mj-title>Mail</mj-title>${head}</mj-head><mj-body background-color="#f0efe9">${body}</mj-body></mjml>`;
const section = (columns, attributes = "") => `<mj-section background-color="#ffffff" ${attributes}>${columns}</mj-section>`;
const column = (inner, attributes = "") => `<mj-column ${attributes}>${inner}</mj-column>`;
const text = (words = TEXT, attributes = "") => `<mj-text ${attributes}>${words}</mj-text>`;
const image = (attributes = "") => `<mj-image src="${PICTURE}" alt="Sleeping car" ${attributes}/>`;

module.exports.sources = {
  text: mail(section(column(text("<h1>Booked</h1>") + text()))),
  "two columns": mail(section(column(text()) + column(text()))),
  "three columns": mail(section([1, 2, 3].map((n) => column(image('width="120px"') + text(`Car ${n}`, 'align="center"'))).join(""))),
  "four columns": mail(section([1, 2, 3, 4].map((n) => column(text(`<b>${n}</b>`, 'align="center" font-size="24px"'))).join(""))),
  group: mail(section(`<mj-group>${column(text("Left"))}${column(text("Right", 'align="right"'))}</mj-group>`)),
  sidebar: mail(section(column(text(), 'width="70%"') + column(text("Aside", 'color="#596079"'), 'width="30%" background-color="#fbfaf7"'))),
  button: mail(section(column(text() + '<mj-button href="https://timetable.test/go" background-color="#9a6700" border-radius="24px">Choose a berth</mj-button>'))),
  divider: mail(section(column(text() + '<mj-divider border-width="1px" border-style="dashed" border-color="#8a8678"/>' + text() + '<mj-spacer height="48px"/>' + text()))),
  image: mail(section(column(image('width="300px" border-radius="12px"') + text()))),
  "remote image": mail(section(column(`<mj-image src="${REMOTE}/winter.jpg" alt="Winter timetable" width="600px" height="200px"/>` + text()))),
  "fluid image": mail(section(column(image('fluid-on-mobile="true" width="200px"') + text()))),
  hero: mail(`<mj-hero mode="fluid-height" background-width="600px" background-height="300px" background-url="${REMOTE}/hero.jpg" background-color="#10131c" padding="80px 0">${text("Winter", 'color="#ffc857" font-size="32px" align="center"')}<mj-button href="https://timetable.test">Look</mj-button></mj-hero>`),
  "full width": mail(section(column(text("Wide", 'color="#ffffff"')), 'full-width="full-width" background-color="#181d2a"') + section(column(text()))),
  "background picture": mail(section(column(text("On a picture", 'color="#ffffff" font-size="24px"')), `background-url="${PICTURE}" background-size="cover" background-repeat="no-repeat" padding="60px 0"`)),
  wrapper: mail(`<mj-wrapper border="1px solid #dcd8cd" padding="24px" background-color="#ffffff">${section(column(text()))}${section(column(text()) + column(text()))}</mj-wrapper>`),
  table: mail(section(column(`<mj-table><tr style="border-bottom:1px solid #dcd8cd;text-align:left"><th>Train</th><th>Leaves</th><th style="text-align:right">Berths</th></tr>${["NJ 402", "EN 40463", "IC 61458"].map((train, n) => `<tr><td>${train}</td><td>2${n}:46</td><td style="text-align:right">${12 * n}</td></tr>`).join("")}</mj-table>`))),
  social: mail(section(column(`<mj-social font-size="15px" icon-size="30px" mode="horizontal"><mj-social-element name="facebook" href="https://a.test/">One</mj-social-element><mj-social-element name="x" href="https://b.test/">Two</mj-social-element></mj-social>`))),
  navbar: mail(section(column(`<mj-navbar base-url="https://timetable.test" hamburger="hamburger" ico-color="#1c2030"><mj-navbar-link href="/a" color="#1c2030">Trains</mj-navbar-link><mj-navbar-link href="/b" color="#1c2030">Berths</mj-navbar-link></mj-navbar>` + text()))),
  accordion: mail(section(column(`<mj-accordion><mj-accordion-element><mj-accordion-title>Breakfast</mj-accordion-title><mj-accordion-text>${TEXT}</mj-accordion-text></mj-accordion-element><mj-accordion-element><mj-accordion-title>Luggage</mj-accordion-title><mj-accordion-text>${TEXT}</mj-accordion-text></mj-accordion-element></mj-accordion>`))),
  carousel: mail(section(column(`<mj-carousel>${[1, 2, 3].map(() => `<mj-carousel-image src="${PICTURE}"/>`).join("")}</mj-carousel>`))),
  fonts: mail(section(column(text(TEXT, 'font-family="Raleway, Georgia, serif" line-height="1.8"'))), `<mj-font name="Raleway" href="https://fonts.timetable.test/css?family=Raleway"/>`),
  styles: mail(section(column(text('<p class="lead">Lead</p><p class="small">Small</p>'), 'css-class="boxed"')), `<mj-style>.lead{font-size:24px;color:#2457c5;border-left:4px solid #9a6700;padding-left:12px}.boxed{border:2px dotted #1a7f4b}@media (max-width:480px){.lead{font-size:18px;color:#b3261e}}</mj-style><mj-style inline="inline">.small{font-size:11px;text-transform:uppercase;letter-spacing:2px}</mj-style>`),
  attributes: mail(section(column(text() + text("Quiet", 'mj-class="quiet"'))), `<mj-attributes><mj-all font-family="Georgia"/><mj-text color="#1c2030" line-height="24px"/><mj-class name="quiet" color="#596079" font-size="11px"/></mj-attributes><mj-preview>What a list shows first</mj-preview>`),
  "right to left": mail(section(column(text("القطار 402 يغادر الساعة 21:46 من الرصيف 7", 'align="right"')) + column(text("Platform 7")), 'direction="rtl"')),
  receipt: mail(section(column(text("<h2>Receipt</h2>") + `<mj-table>${[["Berth in a two-bed cabin", "89.00"], ["Breakfast", "9.50"], ["<b>Sum</b>", "<b>98.50</b>"]].map(([what, price]) => `<tr><td>${what}</td><td style="text-align:right">${price}</td></tr>`).join("")}</mj-table>` + text("Thank you.", 'font-size="13px" color="#596079"'))) + section(column(text("Night Timetable, Platform 7", 'align="center" font-size="11px"')))),
};
