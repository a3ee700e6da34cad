join-title = これから列に並びます
join-lead = 並んだ順にご案内します。
join-button = 列に並ぶ
scheduled-title = まだ開いていません
scheduled-lead = 順番はそのまま保たれます。開始後、順にご案内します。
draw-title = 抽選はこれからです
draw-lead = 開場までに参加した方の順番は、開場時の抽選で決まります。その後に参加した方は、その後ろに並びます。
drawn-lead = 開場前に参加した方の順番は抽選で決まりました。この順番でご入場いただきます。
late-lead = 抽選は終わりました。今から参加する方は、到着順に後ろに並びます。
waiting-title = 順番をお待ちです
waiting-lead = 並んだ順にご案内します。
almost-title = まもなくです
almost-lead = 次にご案内します。この画面を開いたままお待ちください。
paused-title = 列は一時停止中です
paused-lead = 主催者がご案内を一時止めています。順番は保たれます。
admitted-title = あなたの番です
admitted-lead = 時間内にお入りください。
admitted-button = 入る
full-title = 列がいっぱいです
full-lead = しばらくしてからもう一度お試しください。
expired-title = 順番が終了しました
expired-lead = 長い間この画面との通信がなかったか、ご利用が終了しました。
left-title = 列を離れました
left-lead = 順番は次の方に移りました。
over-title = この列は終了しました
over-lead = 主催者が列を閉じました。これ以上のご案内はありません。
lost-title = 接続できません
lost-lead = 接続が切れました。順番は保たれ、この画面は自動で再接続します。
offer-title = この端末で順番を引き継ぐ
offer-lead = このリンクは、列の順番をこの端末に一度だけ移します。いま順番を持っている端末では終了します。
offer-button = 順番を引き継ぐ
moved-title = 順番は別の端末に移りました
moved-lead = 別の端末がリンクで順番を引き継ぎました。このページとリンクからは、その順番に戻れません。
cookies-title = Cookieを許可してください
cookies-lead = 順番はCookieに保存されますが、ブラウザーに保存されませんでした。このサイトのCookieを許可して、もう一度お並びください。
rejoin-button = もう一度並ぶ
work-busy = ブラウザーがボット対策の小さな課題を解いています。
work-wait = 小さな課題でボットを防いでいます。JavaScriptがない場合は、{ $count }秒待ってからボタンを押してください。
ahead = { $count ->
    [0] 前に待っている人はいません
   *[other] 前に{ $count }人待っています
}
entrants = { $count ->
   *[other] { $count } 人が抽選に参加しています
}
draw-link = 抽選を確認する
receipt-link = 受付証明を保存
wait-label = 待ち時間の目安
wait-soon = 1分以内
wait-minutes = { $to ->
    [1] 約{ $to }分
   *[other] { $from }～{ $to }分
}
wait-hours = { $to ->
    [1] 約{ $to }時間
   *[other] { $from }～{ $to }時間
}
wait-unknown = まだ分かりません
number-label = あなたの番号
progress-label = 並んでからの進み具合
opens-label = 開始まで
ends-label = 残り時間
updated-label = 最終更新
kept = 画面を再読み込みしたり閉じたりしても、順番は保たれます。
check-button = 今すぐ確認
auto-button = 自動で更新する
leave-button = 列を離れる
move-title = 別の端末で続ける
move-lead = 別の端末でこのリンクを開き、そこで順番を引き継いでください。使えるのは一度だけです。ほかの人に見せないでください。
soldout-title = 終了しました
soldout-lead = すべて配布されました。
early-title = まだ開始していません
early-lead = 開始後に受け取れます。このページは自動で切り替わります。
claim-title = 受け取れます
claim-lead = 今すぐ受け取ってください。お一人様一つです。
claim-button = 今すぐ受け取る
claimed-title = 受け取りました
claimed-lead = このコードを控えてください。このブラウザーではこのページに再び表示されます。
ended-title = 終わりました
ended-lead = ここではもう受け取れません。
serial-label = 通し番号
code-label = コード
remaining = { $count ->
    [0] 残りはありません
   *[other] 残り{ $count }個
}
language-label = 言語
